"""Epochs of a few batches each, with workers that are started anew for every epoch."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    pieces, labels = common.crops(96, 40)
    images = torch.from_numpy(pieces).permute(0, 3, 1, 2).float() / 255
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, torch.from_numpy(labels)),
        batch_size=16, shuffle=True, num_workers=2, persistent_workers=not run.bottleneck,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch, targets in run.steps(loader):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
