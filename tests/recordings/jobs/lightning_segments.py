"""A Lightning module segments pieces of photographs and logs how well it finds each of twenty-one classes.

cause: cpu.python_overhead
needs: a GPU
fixed: that is computed and logged every fifty batches.
"""

import logging
import warnings

import lightning
import pace
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

CLASSES = 21
SIZE, BATCH, WIDTH = (32, 2, 4) if pace.tiny() else (384, 8, 64)
EVERY = 1 if pace.bottleneck() else 50


def pair(given, out):
    layers = []
    for channels in (given, out):
        layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Net(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.down = nn.ModuleList([pair(3, w), pair(w, 2 * w), pair(2 * w, 4 * w), pair(4 * w, 8 * w)])
        self.up = nn.ModuleList([pair(12 * w, 4 * w), pair(6 * w, 2 * w), pair(3 * w, w)])
        self.head = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        kept = []
        for number, stage in enumerate(self.down):
            x = stage(F.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for stage, skipped in zip(self.up, reversed(kept[:-1]), strict=True):
            x = stage(torch.cat([F.interpolate(x, scale_factor=2.0), skipped], 1))
        return self.head(x)


def class_scores(found, truth):
    """Intersection over union, precision and recall of each class."""
    scores = {}
    for number in range(CLASSES):
        guessed, real = found == number, truth == number
        both, either = (guessed & real).sum().item(), (guessed | real).sum().item()
        scores[f"iou/{number}"] = both / max(either, 1)
        scores[f"precision/{number}"] = both / max(guessed.sum().item(), 1)
        scores[f"recall/{number}"] = both / max(real.sum().item(), 1)
    return scores


class Segmenter(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net(WIDTH)
        photographs = torch.stack([torch.from_numpy(picture.copy()) for picture in pace.photographs()])
        self.register_buffer("photographs", photographs, persistent=False)

    def pieces(self, places):
        window = torch.arange(SIZE, device=self.device)
        rows = (places[:, 1] % (427 - SIZE))[:, None, None] + window[:, None]
        columns = (places[:, 2] % (640 - SIZE))[:, None, None] + window
        colours = self.photographs[(places[:, 0] % 2)[:, None, None], rows, columns].float() / 255
        truth = (colours.mean(-1) * CLASSES).long().clamp(max=CLASSES - 1)
        return colours.permute(0, 3, 1, 2), truth

    def training_step(self, batch, batch_idx):
        pictures, truth = self.pieces(batch[0])
        scores = self.net(pictures)
        loss = F.cross_entropy(scores, truth)
        if batch_idx % EVERY == 0:
            self.log("loss", loss)
            self.log_dict(class_scores(scores.detach().argmax(1).cpu(), truth.cpu()))
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        pace.step()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100_000)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    torch.set_num_threads(4)
    lightning.seed_everything(0, verbose=False)
    places = torch.randint(1_000_000, (400_000, 3))
    loader = DataLoader(TensorDataset(places), batch_size=BATCH, shuffle=True, drop_last=True)
    on_gpu = pace.device().type == "cuda"
    trainer = lightning.Trainer(
        max_epochs=-1, accelerator="gpu" if on_gpu else "cpu", devices=1,
        precision="bf16-mixed" if on_gpu else "32-true", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Segmenter(), loader)


if __name__ == "__main__":
    main()
