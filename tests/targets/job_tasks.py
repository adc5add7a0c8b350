"""A rank that srun has started: it takes its number from Slurm's variables; with "names" it sets torch's own, too."""

# ruff: noqa: TID253
import os
import sys

import torch
import torch.distributed as dist
from torch import nn


def main():
    torch.set_num_threads(1)
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"])
    if "names" in sys.argv:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        model(torch.rand(64, 64)).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
