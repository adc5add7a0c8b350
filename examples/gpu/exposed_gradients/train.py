"""Two ranks train a wide network with little arithmetic per parameter."""

import itertools
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common

EVERY = 16


def average(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()


def main() -> None:
    common.under_torchrun()
    run = common.start(__doc__)
    device = accelerator.device()
    alone = accelerator.on_cpu() or torch.accelerator.device_count() < 2
    if not alone:
        device = torch.device(device.type, run.rank)
        torch.accelerator.set_device_index(run.rank)
    dist.init_process_group("gloo" if alone else None)
    width = 64 if accelerator.on_cpu() else 4096
    model: nn.Module = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 10),
    ).to(device)  # fmt: skip
    if run.bottleneck:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held = [(torch.randn(256, 64, device=device), torch.randint(10, (256,), device=device)) for _ in range(4)]
    batches = accelerator.steps(run, itertools.cycle(held), lead=1 if run.bottleneck else EVERY)
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
