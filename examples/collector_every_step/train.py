"""A job keeps metadata of its samples as Python objects and runs the garbage collector after every step."""

import gc
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    pieces, labels = common.crops(2048, 48)
    images = torch.from_numpy(pieces).permute(0, 3, 1, 2).float() / 255
    metadata = [
        {"id": i, "place": {"row": i // 7, "column": i % 7}, "tags": [f"tag-{i % 13}", [i]]} for i in range(20_000)
    ]
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = 0
    for batch, targets in run.steps(common.shuffled(images, torch.from_numpy(labels), size=64)):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += metadata[int(targets[0])]["place"]["row"] >= 0
        if run.bottleneck:
            gc.collect()  # "to keep memory low"


if __name__ == "__main__":
    main()
