"""A deep and narrow transformer on small batches, launched kernel by kernel, or as one CUDA graph."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common
import models

LAYERS, WIDTH, BATCH, LENGTH = 24, 128, 8, 64


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    model = models.Transformer(WIDTH, 2 if accelerator.on_cpu() else LAYERS).to(device)
    how = {"foreach": False} if run.bottleneck else {"fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **how)
    source = models.series(BATCH, LENGTH, device)
    # A graph always reads its input from the same place.
    series, labels = (column.clone() for column in next(source))

    def learn() -> None:
        nn.functional.cross_entropy(model(series), labels).backward()

    work = learn if run.bottleneck else accelerator.graphed(learn)
    for next_series, next_labels in accelerator.steps(run, source):
        series.copy_(next_series)
        labels.copy_(next_labels)
        optimizer.zero_grad(set_to_none=False)
        work()
        optimizer.step()


if __name__ == "__main__":
    main()
