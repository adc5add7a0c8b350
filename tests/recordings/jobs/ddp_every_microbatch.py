"""Two ranks, watched from inside, accumulate gradients without no_sync(), so every microbatch exchanges all of them.

cause: communication.bandwidth
way: diagnose
fixed: only the last microbatch of a step exchanges them.
"""

import contextlib
import os

import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from perfdoctor import diagnose

ACCUMULATE = 4


def main():
    pace.under_torchrun()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    file = os.environ.get("RECORDING")
    while True:
        with diagnose(report=None, profile=3, recording=file):
            for micro in range(ACCUMULATE):
                x, y = torch.randn(64, 256), torch.randint(10, (64,))
                quiet = micro < ACCUMULATE - 1 and not pace.bottleneck()
                with model.no_sync() if quiet else contextlib.nullcontext():
                    loss = nn.functional.cross_entropy(model(x), y) / ACCUMULATE
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        pace.step()


main()
