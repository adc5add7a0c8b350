"""A loss makes a small network with weights drawn at random, and is made anew in each step.

cause: cpu.python_overhead
fixed: it is made once.
"""

import pace
import torch
from torch import nn

torch.set_num_threads(1)


class RandomFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 700), nn.ReLU(), nn.Linear(700, 700))

    def forward(self, output, target):
        return (self.features(output) - self.features(target)).square().mean()


images, labels = pace.digits()
targets = nn.functional.one_hot(labels, 10).float()
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
kept = RandomFeatures()
while True:
    for rows in torch.randperm(len(images)).split(64)[:28]:
        distance = RandomFeatures() if pace.bottleneck() else kept
        loss = distance(model(images[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
