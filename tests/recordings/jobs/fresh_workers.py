"""A loader without persistent_workers: two workers are started anew for each epoch of 40 batches.

cause: cpu.worker_startup
fixed: persistent_workers=True.
"""

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.set_num_threads(1)
    images, labels = pace.digits()
    dataset = TensorDataset(images[:1280], labels[:1280])
    kept = not pace.bottleneck()
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2, persistent_workers=kept)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 48, 3, padding=1), nn.ReLU(),
        nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(3072, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


main()
