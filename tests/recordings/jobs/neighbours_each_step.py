"""A network of points on a sphere; the model looks up each point's neighbours in a tree that it builds at every step.

cause: cpu.python_overhead
fixed: they are found once.
"""

import numpy as np
import pace
import torch
from scipy.spatial import cKDTree
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
points = np.random.default_rng(0).normal(size=(3000, 3))
points /= np.linalg.norm(points, axis=1, keepdims=True)
waves = torch.from_numpy(np.sin(points @ np.random.default_rng(1).normal(size=(3, 64)) * 4).astype(np.float32))


def neighbours():
    """The twelve nearest points of each, and their weights."""
    far, near = cKDTree(points).query(points, k=13)
    weights = np.exp(-((far[:, 1:] / far[:, 1:].mean()) ** 2))
    return torch.from_numpy(near[:, 1:].copy()), torch.from_numpy(weights.astype(np.float32))


class Passing(nn.Module):
    """Each point takes over a weighted mean of what its neighbours say."""

    def __init__(self, width=48):
        super().__init__()
        self.enter, self.say, self.leave = nn.Linear(16, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.kept = None if pace.bottleneck() else neighbours()

    def forward(self, seen):
        near, weights = self.kept or neighbours()
        state = torch.relu(self.enter(seen))
        for _ in range(2):
            told = self.say(state)[near.flatten()].view(*near.shape, -1)
            state = state + torch.relu((told * weights[..., None]).mean(1))
        return self.leave(state).squeeze(1)


model = Passing()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    for start in range(40):
        guess = model(waves[:, start : start + 16])
        loss = nn.functional.mse_loss(guess, waves[:, start + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
