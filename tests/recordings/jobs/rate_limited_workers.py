"""Loader workers keep to a service's rate limit: they pause for each sample.

cause: cpu.input_preprocessing
fixed: no limit.
"""

import time

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Limited(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        if pace.bottleneck():
            time.sleep(0.002)
        return self.images[row], self.labels[row]


def main():
    torch.set_num_threads(1)
    loader = DataLoader(Limited(*pace.digits()), batch_size=32, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


main()
