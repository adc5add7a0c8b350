"""Trains a model on one batch in memory, step after step."""

import itertools
from collections.abc import Callable

import torch  # noqa: TID253 - a training script imports torch at its top


def train(
    model: torch.nn.Module, batch: torch.Tensor, after: Callable[[int, torch.Tensor], None] = lambda step, loss: None
) -> None:
    """Never ends; says when it is under way. ``after`` gets each step's number and loss."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in itertools.count():
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after(step, loss)
        if step == 2:
            print("ready 0", flush=True)
