"""A sound job on a GPU that it shares with somebody else's process."""

import contextlib
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common
import models
import neighbour

LAYERS, WIDTH, LENGTH = 8, 1024, 256


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    batch = accelerator.sized(64, tiny=1)
    torch.set_float32_matmul_precision("high")
    model = models.Transformer(*((64, 1) if accelerator.on_cpu() else (WIDTH, LAYERS))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    with neighbour.on_the_device(device, run.seconds) if run.bottleneck else contextlib.nullcontext():
        for series, labels in accelerator.steps(run, models.series(batch, LENGTH, device)):
            loss = nn.functional.cross_entropy(model(series), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
