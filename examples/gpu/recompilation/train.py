"""A compiled transformer on series of ever new lengths."""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch._dynamo
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common
import models

LAYERS, WIDTH, LONGEST, BUCKET = 4, 256, 512, 128


def lengths(bottleneck: bool) -> Iterator[int]:
    """Of one batch after the other: hundreds of different ones, or rounded up to a few."""
    generator = torch.Generator().manual_seed(0)
    while True:
        for length in torch.randperm(LONGEST - 1, generator=generator).add(2).tolist():
            yield length if bottleneck else -(-length // BUCKET) * BUCKET


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    limits = torch._dynamo.config
    # As is often done to silence the warning: without it, torch gives up compiling after eight times.
    limits.recompile_limit = limits.accumulated_recompile_limit = 4096
    model = models.Transformer(WIDTH, 1 if accelerator.on_cpu() else LAYERS).to(device)
    # This backend traces and differentiates, and needs neither Triton nor a C compiler.
    compiled = torch.compile(model, dynamic=False, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for length in () if run.bottleneck else range(BUCKET, LONGEST + 1, BUCKET):  # all there are, before training
        compiled(next(models.series(16, length, device, count=1))[0]).sum().backward()
    batches = (next(models.series(16, length, device, count=1)) for length in lengths(run.bottleneck))
    for series, labels in accelerator.steps(run, batches):
        loss = nn.functional.cross_entropy(compiled(series), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
