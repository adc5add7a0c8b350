"""Two ranks accumulate gradients; the sequences of rank 1 are longer, so rank 0 waits for its arithmetic.

cause: cpu.model_compute
straggler: 1
fixed: the ranks have sequences of the same length, those of rank 0.
"""

import contextlib

import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACCUMULATE = 4


def main():
    pace.under_torchrun()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    length = 75 if dist.get_rank() == 1 and pace.bottleneck() else 48
    rnn, head = nn.GRU(64, 160, batch_first=True), nn.Linear(160, 64)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = rnn, head

        def forward(self, x):
            return self.head(self.rnn(x)[0])

    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        for micro in range(ACCUMULATE):
            last = micro == ACCUMULATE - 1
            x = torch.randn(16, length, 64)
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.mse_loss(model(x), x) / ACCUMULATE
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pace.step()


main()
