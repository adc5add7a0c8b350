"""A transformer that empties the allocator's cache after every step, or not."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common
import models

LAYERS, WIDTH, LENGTH = 12, 512, 256


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    batch = accelerator.sized(128, tiny=1)
    torch.set_float32_matmul_precision("high")
    model = models.Transformer(WIDTH, 1 if accelerator.on_cpu() else LAYERS).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for series, labels in accelerator.steps(run, models.series(batch, LENGTH, device)):
        loss = nn.functional.cross_entropy(model(series), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if run.bottleneck and not accelerator.on_cpu():
            torch.get_device_module(device).empty_cache()


if __name__ == "__main__":
    main()
