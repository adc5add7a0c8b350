"""Trains on one batch in memory; hooks make a histogram of each layer's output with NumPy, within the model's call."""

# ruff: noqa: TID253

import sys

import numpy as np
import torch
from endless import train

torch.set_num_threads(1)
width = int(sys.argv[1])  # a wider model makes longer steps


def measure(_: torch.nn.Module, __: object, output: torch.Tensor) -> None:
    np.histogram(output.detach().numpy(), bins=32)


layers = [layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
for layer in layers:
    layer.register_forward_hook(measure)
train(torch.nn.Sequential(*layers), torch.randn(256, width))
