"""A wide transformer, in full or in mixed precision."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common
import models

LAYERS, WIDTH, LENGTH = 4, 2048, 256


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    batch = accelerator.sized(32, tiny=1)
    model = models.Transformer(*((64, 1) if accelerator.on_cpu() else (WIDTH, LAYERS))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    half = accelerator.half()
    scaler = torch.amp.GradScaler(device.type, enabled=not run.bottleneck and half is torch.float16)
    for series, labels in accelerator.steps(run, models.series(batch, LENGTH, device)):
        with torch.autocast(device.type, half, enabled=not run.bottleneck):
            loss = nn.functional.cross_entropy(model(series), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main()
