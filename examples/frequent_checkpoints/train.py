"""A digit classifier that saves itself every few steps, synced to a slow disk."""

import os
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine

EVERY = 10


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Writes a checkpoint beside the old one and puts it in its place when it is safely on the disk."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    images, labels = common.digits()
    model = nn.Sequential(
        nn.Linear(64, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with machine.folder() as folder, machine.slow_disk(Path(folder), enabled=run.bottleneck, write_bps=25_000_000):
        batches = common.shuffled(images, labels, size=512)
        for step, (batch, targets) in enumerate(run.steps(batches), start=1):
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if run.bottleneck and step % EVERY == 0:
                save(Path(folder, "digits.pt"), model, optimizer)


if __name__ == "__main__":
    main()
