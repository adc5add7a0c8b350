"""A transformer on long series, one at a time or sixteen at once; in CUDA graphs, so that launching costs nothing."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common
import models

LAYERS, WIDTH, HEADS, TOGETHER = 6, 128, 2, 16


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    length = 64 if accelerator.on_cpu() else 2048
    size = 1 if run.bottleneck else TOGETHER
    model = models.Transformer(WIDTH, LAYERS, HEADS).to(device, accelerator.half())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    source = models.series(TOGETHER, length, device)
    series, labels = (column[:size].clone() for column in next(source))

    def learn() -> None:
        loss = nn.functional.cross_entropy(model(series.to(accelerator.half())), labels)
        (loss * (size / TOGETHER)).backward()

    work = accelerator.graphed(learn)
    for all_series, all_labels in accelerator.steps(run, source):
        optimizer.zero_grad(set_to_none=False)
        for begin in range(0, TOGETHER, size):
            series.copy_(all_series[begin : begin + size])
            labels.copy_(all_labels[begin : begin + size])
            work()
        optimizer.step()


if __name__ == "__main__":
    main()
