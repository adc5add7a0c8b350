"""What stands at torch's entries while perfdoctor looks: each does what it wraps, and marks when it begins and ends.

Only the thread that trains is marked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns as now
from typing import TYPE_CHECKING, Any, Protocol

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
    SYNC,
    TRANSFER,
)

if TYPE_CHECKING:
    from perfdoctor.probes.inside.same_batch import Trial

Entry = Callable[..., Any]

# Flags of a forward mark.
GRAD, TRAINING = 1, 2
# Flag at the beginning of a data mark: there are workers; at its end: the loader had no more.
WORKERS, EXHAUSTED = 1, 2
# A shorter run of the collector is not marked: marking it would cost as much.
MIN_PAUSE_NS = 10_000


class Marker(Protocol):
    """Whom the hooks tell.

    Attributes:
        thread: identifier of the thread that trains.
        worked: it has begun a backward pass or an optimizer's step since the last step.
        loader_seen: it has taken a batch from a loader.
        late: when the last step ended, if there is something left to do since; 0 if not.
        compiler_tells: torch.compile says when it compiles, and sees torch's own entries then.
        marker: gives the function that makes marks of a kind and value.
        trial: stands between a loader and the training.
    """

    thread: int
    worked: bool
    loader_seen: bool
    late: int
    compiler_tells: bool
    marker: Callable[..., Callable[[int], None]]
    trial: Trial

    def fetches_after_work(self) -> None:
        """The thread that trains takes a batch from a loader, for the first time since it has ``worked``."""
        ...

    def optimizes(self, optimizer: int) -> None:
        """It begins an optimizer's step; only told while no loader was seen."""
        ...

    def optimized(self) -> None:
        """It has ended an optimizer's step; likewise."""
        ...

    def catch_up(self) -> None:
        """Does what is left to do since a step ended; may take the hooks out."""
        ...

    def pauses(self) -> None:
        """The collector has run."""
        ...


Wrapper = Callable[[Marker, Entry], Entry]


def _marks(marker: Marker, kind: int) -> tuple[Callable[[int], None], Callable[[int], None]]:
    return marker.marker(BEGIN | kind), marker.marker(END | kind)


def calls(marker: Marker, original: Entry) -> Entry:
    """``Module.__call__``: marks outermost calls."""
    import torch
    from torch.nn.modules.loss import _Loss

    grad_enabled = torch.is_grad_enabled
    over = marker.marker(END | FORWARD)
    forward = [(marker.marker(BEGIN | FORWARD, flag), over) for flag in range(GRAD + TRAINING + 1)]
    loss = _marks(marker, LOSS)
    is_compiling = getattr(torch.compiler, "is_compiling", lambda: False)
    inside, modules = False, sys.modules
    # Most calls are of submodules. What torch does for them (2.1 and later) is done in its place, not around it:
    # one Python call more would cost a step of many modules much more than all marks.
    direct = original is getattr(torch.nn.Module, "_wrapped_call_impl", None)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside and direct and self._compiled_call_impl is None:
            return self._call_impl(*args, **kwargs)
        if inside or get_ident() != marker.thread:
            return original(self, *args, **kwargs)
        if not marker.compiler_tells and "torch._dynamo" in modules and is_compiling():
            return original(self, *args, **kwargs)
        if marker.late:
            marker.catch_up()
        inside = True
        if isinstance(self, _Loss):
            begun, ended = loss
        else:
            begun, ended = forward[(GRAD if grad_enabled() else 0) + (TRAINING if self.training else 0)]
        begun(now())
        try:
            if direct and self._compiled_call_impl is None:
                return self._call_impl(*args, **kwargs)
            return original(self, *args, **kwargs)
        finally:
            inside = False
            ended(now())

    return __call__


def works(marker: Marker, original: Entry) -> Entry:
    """A backward pass."""
    begun, ended = _marks(marker, BACKWARD)

    def backward(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != marker.thread:
            return original(*args, **kwargs)
        if marker.late:
            marker.catch_up()
        marker.worked = True
        begun(now())
        try:
            return original(*args, **kwargs)
        finally:
            ended(now())

    return backward


def closes(marker: Marker, original: Entry) -> Entry:
    """The closure of an optimizer's step: what runs in it is the script's, not the optimizer's own."""
    begun, ended = _marks(marker, CLOSURE)

    def closure(*args: Any, **kwargs: Any) -> Any:
        begun(now())
        try:
            return original(*args, **kwargs)
        finally:
            ended(now())

    return closure


def starts(marker: Marker, original: Entry) -> Entry:
    """The start of a loader."""
    begun = marker.marker(BEGIN | LOADER_START), marker.marker(BEGIN | LOADER_START, WORKERS)
    ended = marker.marker(END | LOADER_START)

    def __iter__(self: Any) -> Any:
        if get_ident() != marker.thread:
            return original(self)
        marker.loader_seen = True
        if marker.worked:
            marker.fetches_after_work()
        begun[self.num_workers > 0](now())
        try:
            return original(self)
        finally:
            ended(now())

    return __iter__


def fetches(marker: Marker, original: Entry) -> Entry:
    """The fetching of a batch."""
    begun = marker.marker(BEGIN | DATA), marker.marker(BEGIN | DATA, WORKERS)
    ended = marker.marker(END | DATA), marker.marker(END | DATA, EXHAUSTED)

    fetch = marker.trial.serving(original)

    def __next__(self: Any) -> Any:
        if get_ident() != marker.thread:
            return original(self)
        marker.loader_seen = True
        if marker.worked:
            marker.fetches_after_work()
        begun[self._num_workers > 0](now())
        exhausted = False
        try:
            return fetch(self)
        except StopIteration:
            exhausted = True
            raise
        finally:
            ended[exhausted](now())

    return __next__


def syncs(marker: Marker, original: Entry) -> Entry:
    """A collective."""
    begun, ended = _marks(marker, SYNC)

    def collective(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != marker.thread:
            return original(*args, **kwargs)
        begun(now())
        try:
            return original(*args, **kwargs)
        finally:
            ended(now())

    return collective


def moves(marker: Marker, original: Entry) -> Entry:
    """``Tensor.to`` and ``Tensor.cuda``: what takes the host's tensors to the device.

    Tensors that override torch's functions see the original: they may know it by its identity. They are not marked.
    """
    from torch.overrides import handle_torch_function, has_torch_function_unary

    begun, ended = _marks(marker, TRANSFER)

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(original, (self, *args), self, *args, **kwargs)
        if not self.is_cpu or get_ident() != marker.thread:
            return original(self, *args, **kwargs)
        begun(now())
        try:
            return original(self, *args, **kwargs)
        finally:
            ended(now())

    return to


def collects(marker: Marker) -> Callable[[str, dict[str, int]], None]:
    """A function for ``gc.callbacks``: marks pauses of the collector, in whichever thread, since all threads pause."""
    begun = 0

    def collected(moment: str, about: dict[str, int]) -> None:
        nonlocal begun
        if moment == "start":
            begun = now()
        elif begun and (ended := now()) - begun >= MIN_PAUSE_NS:
            marker.marker(BEGIN | COLLECTOR, about["generation"])(begun)
            marker.marker(END | COLLECTOR, about["generation"])(ended)
            marker.pauses()

    return collected
