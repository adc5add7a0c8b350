"""A Lightning module; a callback of the user's counts histograms of all weights in Python after every batch.

cause: cpu.python_overhead
fixed: the histograms are counted by torch, every 50th batch.
"""

import logging
import warnings

import lightning
import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(), nn.Flatten(), nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def training_step(self, batch, _):
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Histograms(lightning.Callback):
    """How the weights of a few rows of each layer are spread."""

    rows = 60

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if pace.bottleneck():
            self.histograms = {name: self.count(weights) for name, weights in module.named_parameters()}
        elif batch_idx % 50 == 0:
            self.histograms = {name: torch.histc(weights, 20, -1, 1) for name, weights in module.named_parameters()}
        pace.step()

    def count(self, weights):
        bins = [0] * 20
        for row in weights.detach().reshape(len(weights), -1)[:, : self.rows].tolist():
            for weight in row:
                bins[min(max(int((weight + 1) * 10), 0), 19)] += 1
        return bins


images, labels = pace.digits()
loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, drop_last=True)
trainer = lightning.Trainer(
    max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=[Histograms()],
)  # fmt: skip
trainer.fit(Digits(), loader)
