"""Trains on numbered items under ``diagnose(confirm=True)``; says which batches came, and how often."""

# ruff: noqa: TID253
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from perfdoctor import diagnose

SIZE = 4


class Numbered(Dataset):
    """Items that tell their number; each costs some time."""

    def __init__(self, item_ms):
        self.item_ms = item_ms

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        until = time.perf_counter() + self.item_ms / 1000
        while time.perf_counter() < until:
            pass
        return torch.full((256,), float(index))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--item-ms", type=float, default=0.0)
    parser.add_argument("--no-loader", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    batches = DataLoader(Numbered(options.item_ms), SIZE, num_workers=options.workers)
    if options.no_loader:
        batches = (torch.rand(SIZE, 256) for _ in range(100_000))
    watched = diagnose(steps=100, report=None, json=options.json, profile=0, confirm=True)
    seen = []
    for batch in batches:
        with watched:
            for _ in range(10):
                model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        seen.append(int(batch[0, 0]) // SIZE)
        if watched.diagnosis is not None:
            break
    if not options.no_loader:
        print("lost", len(set(range(seen[-1] + 1)) - set(seen)) + (sorted(seen) != seen))
        print("repeated", len(seen) - len(set(seen)))


if __name__ == "__main__":
    main()
