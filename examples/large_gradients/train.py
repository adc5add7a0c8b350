"""Two ranks train a wide net with little arithmetic per parameter: each step moves all its gradients."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

EVERY = 16
"""The fix, local SGD: the ranks step on their own and average their parameters only so often."""


def average(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()


def main() -> None:
    common.under_torchrun()
    run = common.start(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    images, labels = common.digits()
    model: nn.Module = nn.Sequential(
        nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
        nn.Linear(2048, 10),
    )  # fmt: skip
    if run.bottleneck:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = run.steps(common.shuffled(images, labels, size=64), lead=1 if run.bottleneck else EVERY)
    for step, (batch, targets) in enumerate(batches, start=1):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not run.bottleneck and step % EVERY == 0:
            average(model)
    common.leave_group()


if __name__ == "__main__":
    main()
