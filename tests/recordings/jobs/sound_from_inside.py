"""A convolutional net on handwritten digits, watched from inside around each step; nothing is wrong.

cause: cpu.model_compute
way: diagnose
"""

import os

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfdoctor import diagnose

images, labels = pace.digits()
loader = DataLoader(TensorDataset(images, labels), batch_size=128, shuffle=True, drop_last=True)
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
    nn.Flatten(), nn.Linear(4096, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    for x, y in loader:
        with diagnose(report=None, steps=500, profile=2, recording=os.environ.get("RECORDING")):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        pace.step()
