"""Reports the steps of a job under trial: when optimizers step and batches come, and what the losses are."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from time import monotonic_ns
from typing import Any

# Numbers of perfdoctor.probes.treated.notes, beside which this file is loaded by its path.
STEP, BATCH, LOSS, GPU_MEMORY = range(1, 5)
# Losses that lie on a device are read together so rarely: each reading waits for the device.
TOGETHER = 16


class StepNotes:
    """Watches steps.

    Args:
        notes: takes what is seen.

    Attributes:
        count: steps of the first optimizer so far.
        after: called after a step with the number of steps so far; may remove itself.
    """

    def __init__(self, notes: Any) -> None:
        self.count = 0
        self.after: list[Callable[[int], None]] = []
        self._notes = notes
        self._optimizers: dict[int, int] = {}
        self._losses: list[tuple[int, Any]] = []
        self._torch: Any = None
        self._reported = False

    def install(self, torch: Any) -> None:
        """Hooks the ends of optimizers' steps, loaders' batches and backward passes."""
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data import dataloader

        self._torch = torch
        os.register_at_fork(after_in_child=self._losses.clear)
        register_optimizer_step_post_hook(self._stepped)
        torch.autograd.backward = self._watching(torch.autograd.backward)
        loader = dataloader._BaseDataLoaderIter
        loader.__next__ = self._batching(loader.__next__)  # type: ignore[method-assign]

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        number = self._optimizers.setdefault(id(optimizer), len(self._optimizers))
        self._notes.event(STEP, monotonic_ns(), number)
        if number == 0:
            self.count += 1
            for call in tuple(self.after):
                call(self.count)

    def _batching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def __next__(iterator: Any) -> Any:
            batch = original(iterator)
            self._notes.event(BATCH, monotonic_ns())
            return batch

        return __next__

    def _watching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
            if isinstance(first, self._torch.Tensor) and first.numel() == 1:
                self._note_loss(first)
            return original(tensors, *args, **kwargs)

        return backward

    def _note_loss(self, loss: Any) -> None:
        now = monotonic_ns()
        if not self._reported:
            self._reported = True
            self._notes.fact("loss", device=loss.device.type)
        if loss.device.type == "cpu":
            self._notes.event(LOSS, now, float(loss.detach()))
            return
        self._losses.append((now, loss.detach()))
        if len(self._losses) >= TOGETHER:
            for time_ns, value in self._losses:
                self._notes.event(LOSS, time_ns, float(value))
            self._losses.clear()
            if self._torch.cuda.is_available():
                self._notes.event(GPU_MEMORY, now, self._torch.cuda.max_memory_allocated())
