"""The network that most GPU examples train, and made-up data for it that lies on the device."""

import itertools
from collections.abc import Iterator

import torch
from torch import nn

FEATURES, CLASSES = 32, 10


class Transformer(nn.Module):
    """Tells classes of series of measurements apart: (batch, length, 32) to (batch, 10)."""

    def __init__(self, width: int, layers: int, heads: int = 4) -> None:
        super().__init__()
        self.enter = nn.Linear(FEATURES, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.leave = nn.Linear(width, CLASSES)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        x = self.enter(series)
        for layer in self.layers:
            x = layer(x)
        return self.leave(x.mean(1))


def series(
    batch: int, length: int, device: torch.device, count: int = 4
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches that lie on the device already, without end."""
    held = [
        (torch.randn(batch, length, FEATURES, device=device), torch.randint(CLASSES, (batch,), device=device))
        for _ in range(count)
    ]
    return itertools.cycle(held)
