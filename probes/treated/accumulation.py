"""Gradients that a job in DDP accumulates over several passes: how many, and how often they are exchanged."""

from __future__ import annotations

from functools import wraps
from typing import Any


class Accumulation:
    """Watches, and changes where that is wanted, when gradients are exchanged.

    Args:
        wanted: `no_sync` is how many passes a step has.
        notes: takes what was seen.
        steps: reports steps.
    """

    def __init__(self, wanted: dict[str, Any], notes: Any, steps: Any) -> None:
        self._wanted = wanted
        self._notes = notes
        self._steps = steps

    def install(self, torch: Any) -> None:
        """Reports how many passes of a model in DDP lie in a step, and exchanges gradients in the last one only."""
        if not torch.distributed.is_available():
            return
        from torch.nn.parallel import DistributedDataParallel
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        last = self._wanted.get("no_sync")
        parallel: Any = DistributedDataParallel
        original = parallel.forward
        models: set[int] = set()
        passes = exchanged = 0
        owing: Any = None  # has gradients that were not exchanged
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

        @wraps(original)
        def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal passes, exchanged, owing
            # What is compiled is left alone: a count would compile it anew again and again.
            if is_compiling() or not torch.is_grad_enabled() or not model.training:
                return original(model, *args, **kwargs)
            models.add(id(model))
            passes += 1
            exchanged += model.require_backward_grad_sync
            if not last or passes >= last:
                owing = None
                return original(model, *args, **kwargs)
            self._notes.fact("applied", change="no_sync")
            owing = model
            with model.no_sync():  # the forward pass decides whether the backward pass exchanges
                return original(model, *args, **kwargs)

        def before_step(*_: Any) -> None:
            """A step with fewer passes than usual, at the end of an epoch for instance: exchanges what is owed."""
            nonlocal owing
            if owing is not None:
                for gradient in [one.grad for one in owing.parameters() if one.grad is not None]:
                    torch.distributed.all_reduce(gradient, group=owing.process_group)
                    gradient /= owing.process_group.size()
                owing = None

        def stepped(_: int) -> None:
            nonlocal passes, exchanged
            if passes:
                self._notes.fact("accumulation", passes=passes, exchanged=exchanged, models=len(models))
            passes = exchanged = 0

        parallel.forward = forward
        register_optimizer_step_pre_hook(before_step)
        self._steps.after.append(stepped)
