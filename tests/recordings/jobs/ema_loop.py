"""A deep, narrow net with an exponential moving average of its weights, updated tensor by tensor in Python.

cause: cpu.python_overhead
fixed: one fused call for all tensors.
"""

import copy

import pace
import torch
from torch import nn

torch.set_num_threads(1)
blocks = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(48)]
model = nn.Sequential(nn.Linear(64, 64), *blocks, nn.Linear(64, 10))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
images, labels = pace.digits()


@torch.no_grad()
def update(decay=0.999):
    new = model.state_dict()
    for name, old in average.state_dict().items():
        old.copy_(decay * old + (1 - decay) * new[name].detach())
        if not torch.isfinite(old).all():
            raise FloatingPointError(name)


@torch.no_grad()
def update_at_once(decay=0.999):
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)


while True:
    order = torch.randperm(len(images))
    for rows in order.split(96):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if pace.bottleneck():
            update()
        else:
            update_at_once()
        pace.step()
