"""A transformer whose activations are checked after every layer."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common
import models

LAYERS, WIDTH, LENGTH = 24, 512, 256
EVERY = 50


class Checked(models.Transformer):
    """Counts activations that are not finite; the slow one wants to know at once."""

    def __init__(self, at_once: bool, device: torch.device) -> None:
        super().__init__(WIDTH, 2 if accelerator.on_cpu() else LAYERS)
        self.at_once = at_once
        self.infinite = torch.zeros((), dtype=torch.int64, device=device)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        x = self.enter(series)
        for layer in self.layers:
            x = layer(x)
            self.infinite += (~torch.isfinite(x)).sum()
            if self.at_once:
                self.check()
        return self.leave(x.mean(1))

    def check(self) -> None:
        if self.infinite.item() > 0:
            raise RuntimeError("activations are not finite")


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    batch = accelerator.sized(96, tiny=1)
    torch.set_float32_matmul_precision("high")
    model = Checked(run.bottleneck, device).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for step, (series, labels) in enumerate(accelerator.steps(run, models.series(batch, LENGTH, device))):
        loss = nn.functional.cross_entropy(model(series), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            model.check()


if __name__ == "__main__":
    main()
