"""A sound job in a container that may use less than one core, as small CPU requests on clusters make them."""

import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine

PERIOD_US = 100_000
QUOTA_US = 65_000


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    images, labels = common.digits()
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    quota = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(QUOTA_US)}
    with machine.control_group("cpu", quota) if run.bottleneck else nullcontext():
        for batch, targets in run.steps(common.shuffled(images, labels, size=256)):
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
