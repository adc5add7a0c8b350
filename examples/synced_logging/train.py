"""A digit classifier that writes its metrics after every step and waits until they are on the disk."""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    images, labels = common.digits()
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with (
        machine.folder() as folder,
        machine.slow_disk(Path(folder), enabled=run.bottleneck, write_iops=300),
        Path(folder, "metrics.jsonl").open("w") as log,
    ):
        for batch, targets in run.steps(common.shuffled(images, labels, size=256)):
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(json.dumps({"time": time.time(), "loss": loss.item()}) + "\n")
            if run.bottleneck:
                log.flush()
                os.fsync(log.fileno())


if __name__ == "__main__":
    main()
