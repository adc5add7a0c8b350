"""A simulation in a process of its own hands trajectories over a queue as lists of tuples, pickled number by number.

cause: cpu.data_transfer
fixed: it hands over arrays.
"""

import multiprocessing

import numpy as np
import pace
import torch
from torch import nn

PARTICLES = 10_000


def simulate(queue):
    rng = np.random.default_rng(0)
    positions = rng.standard_normal((PARTICLES, 3)).astype(np.float32)
    while True:
        positions += 0.01 * rng.standard_normal(positions.shape).astype(np.float32)
        queue.put([tuple(row) for row in positions.tolist()] if pace.bottleneck() else positions.copy())


def main():
    torch.set_num_threads(1)
    queue = multiprocessing.Queue(maxsize=4)
    multiprocessing.Process(target=simulate, args=(queue,), daemon=True).start()
    model = nn.Sequential(nn.Linear(3, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        x = torch.as_tensor(np.asarray(queue.get(), dtype=np.float32))
        energy = x.pow(2).sum(1, keepdim=True)
        loss = nn.functional.mse_loss(model(x), energy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()


main()
