"""The script binds itself to one core after PyTorch is there, and both of its compute threads take turns on it.

cause: cpu.contention
fixed: it binds nothing.
"""

import os

import pace
import torch
from torch import nn

if pace.bottleneck():
    os.sched_setaffinity(0, {0})
torch.set_num_threads(2)
images, labels = pace.digits()
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(),
    nn.Flatten(), nn.Linear(4096, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    for rows in torch.randperm(len(images)).split(128):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
