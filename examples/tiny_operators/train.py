"""A convolutional net with a loss that is written as a loop over pairs of samples: many tiny operators."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

BATCH = 48


def loss_by_pairs(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Pulls each sample to its neighbour in the batch if they are of one class, pushes it away otherwise."""
    same = labels == labels.roll(1)
    total = features.new_zeros(())
    for i in range(len(features)):
        distance = (features[i] - features[i - 1]).pow(2).sum()
        push = (1 - distance.clamp(min=1e-6).sqrt()).clamp(min=0).pow(2)
        total = total + torch.where(same[i], distance, push)
    return total / len(features)


def loss_at_once(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The same loss in a few operators on the whole batch."""
    same = labels == labels.roll(1)
    distance = (features - features.roll(1, 0)).pow(2).sum(1)
    push = (1 - distance.clamp(min=1e-6).sqrt()).clamp(min=0).pow(2)
    return torch.where(same, distance, push).mean()


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    pieces, labels = common.crops(2048, 32)
    images = torch.from_numpy(pieces).permute(0, 3, 1, 2).float() / 255
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(2048, 32),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = loss_by_pairs if run.bottleneck else loss_at_once
    for batch, targets in run.steps(common.shuffled(images, torch.from_numpy(labels), size=BATCH)):
        loss = criterion(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
