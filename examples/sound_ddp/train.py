"""Two ranks with much arithmetic each and small gradients: the time goes into the model."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


def main() -> None:
    common.under_torchrun()
    run = common.start(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    pieces, labels = common.crops(1024, 48, seed=run.rank)
    images = torch.from_numpy(pieces).permute(0, 3, 1, 2).float() / 255
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
        )
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch, targets in run.steps(common.shuffled(images, torch.from_numpy(labels), size=64)):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    common.leave_group()


if __name__ == "__main__":
    main()
