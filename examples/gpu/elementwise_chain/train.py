"""Layers with a hand-written GELU and normalisation, or with PyTorch's own."""

import itertools
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common

WIDTH, BLOCKS = 1024, 4
# Per row: the tensors that a block keeps for its backward pass, about 25 of them.
ROW_BYTES = BLOCKS * 25 * WIDTH * 4


def gelu_by_hand(x: torch.Tensor) -> torch.Tensor:
    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + torch.tanh(inner))


def normalize_by_hand(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred * centred).mean(-1, keepdim=True).add(1e-5).sqrt()


def gelu(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.gelu(x, approximate="tanh")


def normalize(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.layer_norm(x, x.shape[-1:])


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    fitting = int(0.3 * accelerator.memory_bytes() / ROW_BYTES)
    rows = min(65536, 1 << max(5, fitting.bit_length() - 1))
    torch.set_float32_matmul_precision("high")
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS)).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    activate, norm = (gelu_by_hand, normalize_by_hand) if run.bottleneck else (gelu, normalize)
    held = [torch.randn(rows, WIDTH, device=device) for _ in range(2)]
    for batch in accelerator.steps(run, itertools.cycle(held)):
        x = batch
        for layer in layers:
            x = x + activate(norm(layer(x)))
        loss = nn.functional.mse_loss(x, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
