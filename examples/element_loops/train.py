"""A digit classifier that counts its confusion matrix after every step, element by element."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


def count_by_element(confusion: torch.Tensor, labels: torch.Tensor, guesses: torch.Tensor) -> None:
    for label, guess in zip(labels, guesses, strict=True):
        confusion[label, guess] += 1


def count_at_once(confusion: torch.Tensor, labels: torch.Tensor, guesses: torch.Tensor) -> None:
    confusion += torch.bincount(labels * 10 + guesses, minlength=100).view(10, 10)


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    images, labels = common.digits()
    model = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    confusion = torch.zeros(10, 10, dtype=torch.long)
    count = count_by_element if run.bottleneck else count_at_once
    for batch, targets in run.steps(common.shuffled(images, labels, size=256)):
        output = model(batch)
        loss = nn.functional.cross_entropy(output, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        count(confusion, targets, output.argmax(1))


if __name__ == "__main__":
    main()
