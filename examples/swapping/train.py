"""A job keeps all features in memory, but its memory limit is smaller: the rest is swapped out."""

import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine

MIB = 2**20
SIZE, SAMPLES = 64, 8192


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    pieces, labels = common.crops(256, SIZE)
    targets = torch.from_numpy(np.resize(labels, SAMPLES))
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with machine.little_memory(320 * MIB, swap=512 * MIB) if run.bottleneck else nullcontext():
        images = torch.empty(SAMPLES, 3, SIZE, SIZE)  # 384 MiB
        for i in range(SAMPLES):
            images[i] = torch.from_numpy(pieces[i % len(pieces)]).permute(2, 0, 1) / 255
        for batch, classes in run.steps(common.shuffled(images, targets, size=32)):
            loss = nn.functional.cross_entropy(model(batch), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        del images


if __name__ == "__main__":
    main()
