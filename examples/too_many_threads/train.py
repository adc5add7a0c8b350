"""A job that was set up for a larger machine: many more threads per operator than there are cores."""

import os
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


def main() -> None:
    run = common.start(__doc__)
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(8 * cores if run.bottleneck else cores)
    pieces, labels = common.crops(2048, 48)
    images = torch.from_numpy(pieces).permute(0, 3, 1, 2).float() / 255
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch, targets in run.steps(common.shuffled(images, torch.from_numpy(labels), size=64)):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
