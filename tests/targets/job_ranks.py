"""Two ranks that train together through gloo until they are ended; each prints "rank" and its pid once it trains."""

# ruff: noqa: TID253
import os

import torch
import torch.distributed as dist
from torch import nn


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1_000_000):
        loss = model(torch.rand(256, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 20:
            # In one write: the ranks share the pipe.
            os.write(1, f"rank {os.getpid()}\n".encode())


if __name__ == "__main__":
    main()
