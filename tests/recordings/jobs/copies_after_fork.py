"""A loader without persistent_workers beside a model of 10 million weights, which the trainer copies after each fork.

cause: cpu.worker_startup
fixed: persistent_workers=True.
"""

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.set_num_threads(1)
    dataset = TensorDataset(torch.rand(320, 3, 32, 32), torch.randint(0, 10, (320,)))
    kept = not pace.bottleneck()
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2, persistent_workers=kept)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


main()
