"""A Lightning module scores each training batch with a collection of torchmetrics.

cause: cpu.python_overhead
fixed: it scores every fortieth.
"""

import logging
import warnings

import lightning
import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MulticlassF1Score,
    MulticlassRecall,
)

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

CLASSES = 12
EVERY = 1 if pace.bottleneck() else 40


class Crops(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(8, 96, 5, padding=2), nn.BatchNorm1d(96), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(96, 160, 5, padding=2), nn.BatchNorm1d(160), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(),
            nn.Linear(640, 512), nn.ReLU(), nn.Linear(512, CLASSES),
        )  # fmt: skip
        self.scores = MetricCollection(
            [
                MulticlassAccuracy(CLASSES),
                MulticlassF1Score(CLASSES),
                MulticlassRecall(CLASSES, average="macro"),
                MulticlassCalibrationError(CLASSES, n_bins=20),
            ]
        )

    def training_step(self, batch, batch_idx):
        series, crop = batch
        found = self.net(series)
        loss = nn.functional.cross_entropy(found, crop)
        if batch_idx % EVERY == 0:
            self.log_dict(self.scores(found.detach().softmax(1), crop))
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        pace.step()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(12_000, 8, 64), torch.randint(CLASSES, (12_000,)))
    trainer = lightning.Trainer(
        max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Crops(), DataLoader(data, batch_size=64, shuffle=True, drop_last=True))


if __name__ == "__main__":
    main()
