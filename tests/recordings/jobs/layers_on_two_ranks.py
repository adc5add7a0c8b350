"""Two ranks share each layer of a feed-forward network, and exchange its activations.

cause: communication.bandwidth
fixed: they share nothing: each rank trains the whole network, on half of the samples, and exchanges gradients once.
"""

import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

SAMPLES, WIDTH, LAYERS = 1536, 192, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 6 * WIDTH), nn.Linear(6 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main():
    pace.under_torchrun()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(LAYERS)])
    samples = SAMPLES
    if pace.bottleneck():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    else:
        model, samples = DistributedDataParallel(model), SAMPLES // dist.get_world_size()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    while True:
        x = torch.randn(samples, WIDTH)
        loss = (model(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pace.step()


main()
