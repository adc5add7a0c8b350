"""A sound job on a machine that it shares with processes of others, which want more cores than there are."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    pieces, labels = common.crops(2048, 32)
    images = torch.from_numpy(pieces).permute(0, 3, 1, 2).float() / 255
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = 2 * (os.cpu_count() or 1) - 1
    with machine.neighbours(count, run.seconds) if run.bottleneck else nullcontext():
        for batch, targets in run.steps(common.shuffled(images, torch.from_numpy(labels), size=64)):
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
