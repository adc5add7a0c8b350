"""What stands at torch's entries while perfdoctor watches: each does what it wraps, and marks when it begins and ends.

Only the thread that trains is marked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns as now
from typing import Any, TypeAlias

from perfdoctor.probes.inside.ring import (
    BACKWARD,
    BEGIN,
    CLOSURE,
    COLLECTOR,
    DATA,
    END,
    FORWARD,
    LOADER_START,
    LOSS,
    OPTIMIZER,
    SYNC,
    TRANSFER,
    Mark,
)
from perfdoctor.probes.inside.training_loop import TrainingLoop

Entry: TypeAlias = Callable[..., Any]

# Flags of a forward mark.
GRAD, TRAINING = 1, 2
# Flag at the beginning of a data mark: there are workers; at its end: the loader had no more.
WORKERS, EXHAUSTED = 1, 2
# A shorter run of the garbage collector is not marked: marking it would cost as much.
MIN_PAUSE_NS = 10_000


def _marks(loop: TrainingLoop, kind: int) -> tuple[Mark, Mark]:
    return loop.marker(BEGIN | kind), loop.marker(END | kind)


def module_call(loop: TrainingLoop, original: Entry) -> Entry:
    """``Module.__call__``: marks outermost calls."""
    import torch
    from torch.nn.modules.loss import _Loss

    grad_enabled = torch.is_grad_enabled
    over = loop.marker(END | FORWARD)
    forward = [(loop.marker(BEGIN | FORWARD, flag), over) for flag in range(GRAD + TRAINING + 1)]
    loss = _marks(loop, LOSS)
    is_compiling = getattr(torch.compiler, "is_compiling", lambda: False)
    inside, modules = False, sys.modules
    # Most calls are of submodules. What torch does for them (2.1 and later) is done in its place, not around it:
    # one Python call more would cost a step of many modules much more than all marks.
    direct = original is getattr(torch.nn.Module, "_wrapped_call_impl", None)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside and direct and self._compiled_call_impl is None:
            return self._call_impl(*args, **kwargs)
        if inside or get_ident() != loop.thread:
            return original(self, *args, **kwargs)
        if loop.asks_compiler and "torch._dynamo" in modules and is_compiling():
            return original(self, *args, **kwargs)
        if loop.late_ns:
            loop.catch_up()
        inside = True
        if isinstance(self, _Loss):
            begun, ended = loss
        else:
            begun, ended = forward[(GRAD if grad_enabled() else 0) + (TRAINING if self.training else 0)]
        begun(now())
        try:
            return original(self, *args, **kwargs)
        finally:
            inside = False
            ended(now())

    return __call__


def backward_pass(loop: TrainingLoop, original: Entry) -> Entry:
    """``torch.autograd.backward`` and ``grad``."""
    begun, ended = _marks(loop, BACKWARD)

    def backward(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != loop.thread:
            return original(*args, **kwargs)
        if loop.late_ns:
            loop.catch_up()
        loop.worked = True
        begun(now())
        try:
            return original(*args, **kwargs)
        finally:
            ended(now())

    return backward


def collective(loop: TrainingLoop, original: Entry) -> Entry:
    """A collective of ``torch.distributed``."""
    return _marked(loop, SYNC, original)


def _marked(loop: TrainingLoop, kind: int, original: Entry) -> Entry:
    begun, ended = _marks(loop, kind)

    def marked(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != loop.thread:
            return original(*args, **kwargs)
        begun(now())
        try:
            return original(*args, **kwargs)
        finally:
            ended(now())

    return marked


def loader_start(loop: TrainingLoop, original: Entry) -> Entry:
    """``DataLoader.__iter__``."""
    begun = loop.marker(BEGIN | LOADER_START), loop.marker(BEGIN | LOADER_START, WORKERS)
    ended = loop.marker(END | LOADER_START)

    def __iter__(self: Any) -> Any:
        if get_ident() != loop.thread:
            return original(self)
        loop.loader_seen = True
        if loop.worked:
            loop.batch_wanted()
        begun[self.num_workers > 0](now())
        try:
            return original(self)
        finally:
            ended(now())

    return __iter__


def loader_next(loop: TrainingLoop, original: Entry, serve: Entry) -> Entry:
    """``__next__`` of a loader's iterator.

    Args:
        loop: what to mark.
        original: what other threads get.
        serve: what gives the batches to the thread that trains.
    """
    begun = loop.marker(BEGIN | DATA), loop.marker(BEGIN | DATA, WORKERS)
    ended = loop.marker(END | DATA), loop.marker(END | DATA, EXHAUSTED)

    def __next__(self: Any) -> Any:
        if get_ident() != loop.thread:
            return original(self)
        loop.loader_seen = True
        if loop.worked:
            loop.batch_wanted()
        begun[self._num_workers > 0](now())
        exhausted = False
        try:
            return serve(self)
        except StopIteration:
            exhausted = True
            raise
        finally:
            ended[exhausted](now())

    return __next__


def tensor_move(loop: TrainingLoop, original: Entry) -> Entry:
    """``Tensor.to`` and ``Tensor.cuda``: what takes the host's tensors to the device.

    Tensors that override torch's functions see the original: they may know it by its identity. They are not marked.
    """
    from torch.overrides import handle_torch_function, has_torch_function_unary

    begun, ended = _marks(loop, TRANSFER)

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(original, (self, *args), self, *args, **kwargs)
        if not self.is_cpu or get_ident() != loop.thread:
            return original(self, *args, **kwargs)
        begun(now())
        try:
            return original(self, *args, **kwargs)
        finally:
            ended(now())

    return to


def optimizer_hooks(loop: TrainingLoop) -> tuple[Entry, Entry]:
    """Functions for torch's global hooks before and after an optimizer's step."""
    begun, ended = _marks(loop, OPTIMIZER)

    def begins(optimizer: object, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if get_ident() != loop.thread:
            return None
        loop.worked = True
        if not loop.loader_seen:
            loop.optimizer_begins(id(optimizer))
        begun(now())
        return _with_closure(loop, args, kwargs) if kwargs or len(args) > 1 else None

    def ends(_: object, args: Any, kwargs: Any) -> None:
        if get_ident() == loop.thread:
            ended(now())
            if not loop.loader_seen:
                loop.optimizer_ended()

    return begins, ends


def _with_closure(loop: TrainingLoop, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The arguments of an optimizer's step with its closure marked: what runs in it is the script's, not its own.

    Returns:
        None if it has no closure.
    """
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _marked(loop, CLOSURE, kwargs["closure"])}
    if len(args) > 1 and callable(args[1]):
        return (args[0], _marked(loop, CLOSURE, args[1]), *args[2:]), kwargs
    return None


def garbage_collection(loop: TrainingLoop, marked: Callable[[], None]) -> Callable[[str, dict[str, int]], None]:
    """A function for ``gc.callbacks``: marks pauses, in whichever thread, since all threads pause.

    Args:
        loop: what to mark.
        marked: called after a pause was marked.
    """
    begun = 0

    def collected(moment: str, about: dict[str, int]) -> None:
        nonlocal begun
        if moment == "start":
            begun = now()
        elif begun and (ended := now()) - begun >= MIN_PAUSE_NS:
            loop.marker(BEGIN | COLLECTOR, about["generation"])(begun)
            loop.marker(END | COLLECTOR, about["generation"])(ended)
            marked()

    return collected
