"""Two ranks accumulate gradients in the loop over batches, and every batch exchanges all of them.

cause: communication.bandwidth
fixed: only the batch before an update exchanges them.
"""

import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Loop:
    def __init__(self, accumulate):
        model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 20))
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.accumulate = accumulate

    def passes(self, inputs, targets):
        loss = nn.functional.cross_entropy(self.model(inputs), targets) / self.accumulate
        loss.backward()

    def epoch(self, batches):
        self.model.train()
        for step, (inputs, targets) in enumerate(batches):
            # What no_sync() sets, whose name would show that it is known.
            self.model.require_backward_grad_sync = pace.bottleneck() or (step + 1) % self.accumulate == 0
            self.passes(inputs, targets)
            if (step + 1) % self.accumulate == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                pace.step()


def main():
    pace.under_torchrun()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())
    batches = [(torch.randn(192, 512), torch.randint(20, (192,))) for _ in range(40)]
    loop = Loop(accumulate=4)
    while True:
        loop.epoch(batches)


main()
