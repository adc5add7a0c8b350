"""A digit classifier with a thread that never rests: it computes statistics in pure Python."""

import collections
import sys
import threading
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


class LossStatistics(threading.Thread):
    """Keeps mean and spread of the latest losses, again and again, for a dashboard."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="loss-statistics")
        self.losses: collections.deque[float] = collections.deque(maxlen=5000)
        self.summary = (0.0, 0.0)

    def run(self) -> None:
        while True:
            values = list(self.losses) or [0.0]
            mean = sum(values) / len(values)
            spread = 0.0
            for value in values:
                spread += (value - mean) ** 2
            self.summary = (mean, (spread / len(values)) ** 0.5)


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    images, labels = common.digits()
    model = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    statistics = LossStatistics()
    if run.bottleneck:
        statistics.start()
    for batch, targets in run.steps(common.shuffled(images, labels, size=256)):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        statistics.losses.append(loss.item())


if __name__ == "__main__":
    main()
