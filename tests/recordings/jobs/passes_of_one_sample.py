"""Each update is made of 32 passes of one sample each, whose gradients add up.

cause: cpu.python_overhead
fixed: one pass over all 32.
"""

import pace
import torch
from torch import nn

torch.set_num_threads(1)
images, labels = pace.digits()
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    for rows in torch.randperm(len(images)).split(32):
        optimizer.zero_grad()
        for part in rows.split(1 if pace.bottleneck() else 32):
            loss = nn.functional.cross_entropy(model(images[part]), labels[part])
            (loss * len(part) / len(rows)).backward()
        optimizer.step()
        pace.step()
