"""Where a training step's phases begin and end in torch: hooks that are put in, and taken out again without a trace.

Optimizers have global hooks. Global module hooks would run for every submodule and switch off torch's fast path (some
µs for each), so the entry of all modules, ``Module.__call__``, is wrapped instead: inside an outermost call that costs
two comparisons. The other entries are wrapped likewise, and go back to what they were.
"""

from __future__ import annotations

import functools
import gc
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
    OPTIMIZER,
    SYNC,
)

if TYPE_CHECKING:
    import torch

    from perfdoctor.probes.inside.trial import Trial

# Flags of a forward or loss mark.
GRAD, TRAINING = 1, 2
# Flag at the beginning of a data mark: there are workers; at its end: the loader had no more.
WORKERS, EXHAUSTED = 1, 2
# A shorter run of the collector is not marked: marking it would cost as much.
MIN_PAUSE_NS = 10_000

COLLECTIVES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "gather",
    "scatter",
    "barrier",
    "all_gather_object",
    "broadcast_object_list",
)

_Wrapped = Callable[..., Any]


class Marker(Protocol):
    """Whom the hooks tell.

    Attributes:
        thread: identifier of the thread that trains.
        worked: it has begun a backward pass since the last step.
        marker: gives the function that makes marks of a kind and value.
        trial: stands between a loader and the training.
    """

    thread: int
    worked: bool
    marker: Callable[..., Callable[[int], None]]
    trial: Trial

    def fetches(self) -> None:
        """The thread that trains is about to take a batch from a loader."""
        ...

    def optimizes(self, optimizer: int) -> None:
        """It begins an optimizer's step."""
        ...

    def optimized(self) -> None:
        """It has ended an optimizer's step."""
        ...

    def pauses(self) -> None:
        """The collector has run."""
        ...


class Hooks:
    """All hooks of one session.

    Args:
        marker: whom to tell; only its thread is marked.
    """

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self._undo: list[Callable[[], None]] = []
        self._compiler: Any = None

    def install(self) -> list[str]:
        """Puts all hooks in.

        Returns:
            Which entries this torch does not have.
        """
        missing = self._put_in()
        self._mind_compiler()
        return missing

    def remove(self) -> None:
        """Takes all hooks out again."""
        self._take_out()
        if self._compiler is not None:
            self._compiler.remove_start_callback(self._compiling)
            self._compiler.remove_end_callback(self._compiled)
            self._compiler = None

    def _mind_compiler(self) -> None:
        """Lets torch.compile see torch as it is.

        What it compiles holds only as long as the functions that it saw on the way stay what they are: it would
        compile all models anew when perfdoctor steps aside.
        """
        callback = sys.modules.get("torch._dynamo.callback")
        if callback is None or self._compiler is not None or not hasattr(callback, "callback_handler"):
            return
        self._compiler = callback.callback_handler
        self._compiler.register_start_callback(self._compiling)
        self._compiler.register_end_callback(self._compiled)

    def _compiling(self, _: object) -> None:
        self._take_out()

    def _compiled(self, _: object) -> None:
        if not self._undo:
            self._put_in()

    def _put_in(self) -> list[str]:
        import torch
        from torch.optim import optimizer as optim
        from torch.utils.data import DataLoader, dataloader

        missing: list[str] = []
        entries: list[tuple[Any, str, Callable[[_Wrapped], _Wrapped]]] = [
            (torch.nn.Module, "__call__", self._calls),
            (torch.autograd, "backward", self._works),
            (torch.autograd, "grad", self._works),
            (DataLoader, "__iter__", self._starts),
            (getattr(dataloader, "_BaseDataLoaderIter", None), "__next__", self._fetches),
            (torch, "compile", self._compiles),
        ]
        if torch.distributed.is_available():
            from torch.distributed import distributed_c10d

            for place in (torch.distributed, distributed_c10d):
                entries += [(place, name, self._syncs) for name in COLLECTIVES]
        for owner, name, wrapper in entries:
            if owner is None or not hasattr(owner, name):
                missing.append(name)
            else:
                self._wrap(owner, name, wrapper)
        self._hook_optimizers(optim)
        collected = _collector_marks(self._marker)
        gc.callbacks.append(collected)
        self._undo.append(lambda: gc.callbacks.remove(collected))
        return missing

    def _take_out(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[_Wrapped], _Wrapped]) -> None:
        before = vars(owner)[name]
        ours = functools.wraps(before)(wrapper(before))
        setattr(owner, name, ours)
        self._undo.append(functools.partial(_put_back, owner, name, ours, before))

    def _marks(self, kind: int) -> tuple[Callable[[int], None], Callable[[int], None]]:
        return self._marker.marker(BEGIN | kind), self._marker.marker(END | kind)

    def _hook_optimizers(self, optim: Any) -> None:
        marker, begun, ended = self._marker, *self._marks(OPTIMIZER)

        def begins(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
            if get_ident() != marker.thread:
                return None
            marker.optimizes(id(optimizer))
            begun(now())
            return self._with_closure(args, kwargs)

        def ends(*_: object) -> None:
            if get_ident() == marker.thread:
                ended(now())
                marker.optimized()

        before = optim.register_optimizer_step_pre_hook(begins)
        after = optim.register_optimizer_step_post_hook(ends)
        self._undo += [before.remove, after.remove]

    def _with_closure(self, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The arguments of an optimizer's step with its closure marked: what runs in it is the script's, not its own.

        Returns:
            None if it has no closure.
        """
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._closes(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._closes(args[1]), *args[2:]), kwargs
        return None

    def _closes(self, original: _Wrapped) -> _Wrapped:
        begun, ended = self._marks(CLOSURE)

        def closure(*args: Any, **kwargs: Any) -> Any:
            begun(now())
            try:
                return original(*args, **kwargs)
            finally:
                ended(now())

        return closure

    def _calls(self, original: _Wrapped) -> _Wrapped:
        """Wraps ``Module.__call__``: marks outermost calls of the thread that trains."""
        import torch
        from torch.nn.modules.loss import _Loss

        marker, grad_enabled = self._marker, torch.is_grad_enabled
        flags = range(GRAD + TRAINING + 1)
        begun = [[marker.marker(BEGIN | kind, flag) for flag in flags] for kind in (FORWARD, LOSS)]
        ended = [marker.marker(END | kind) for kind in (FORWARD, LOSS)]
        is_compiling = getattr(torch.compiler, "is_compiling", lambda: False)
        inside = False
        # Most calls are of submodules. What torch does for them (2.1 and later) is done in its place, not around it:
        # one Python call more would cost a step of many modules much more than all marks.
        direct = original is getattr(torch.nn.Module, "_wrapped_call_impl", None)

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside and direct and self._compiled_call_impl is None:
                return self._call_impl(*args, **kwargs)
            if inside or is_compiling() or get_ident() != marker.thread:
                return original(self, *args, **kwargs)
            inside = True
            loss = isinstance(self, _Loss)
            begun[loss][GRAD * grad_enabled() | TRAINING * bool(self.training)](now())
            try:
                return original(self, *args, **kwargs)
            finally:
                inside = False
                ended[loss](now())

        return __call__

    def _works(self, original: _Wrapped) -> _Wrapped:
        marker, begun, ended = self._marker, *self._marks(BACKWARD)

        def backward(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != marker.thread:
                return original(*args, **kwargs)
            marker.worked = True
            begun(now())
            try:
                return original(*args, **kwargs)
            finally:
                ended(now())

        return backward

    def _compiles(self, original: _Wrapped) -> _Wrapped:
        def compile(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self._mind_compiler()

        return compile

    def _starts(self, original: _Wrapped) -> _Wrapped:
        marker = self._marker
        begun = marker.marker(BEGIN | LOADER_START), marker.marker(BEGIN | LOADER_START, WORKERS)
        ended = marker.marker(END | LOADER_START)

        def __iter__(self: Any) -> Any:
            if get_ident() != marker.thread:
                return original(self)
            marker.fetches()
            begun[self.num_workers > 0](now())
            try:
                return original(self)
            finally:
                ended(now())

        return __iter__

    def _fetches(self, original: _Wrapped) -> _Wrapped:
        marker = self._marker
        begun = marker.marker(BEGIN | DATA), marker.marker(BEGIN | DATA, WORKERS)
        ended = marker.marker(END | DATA), marker.marker(END | DATA, EXHAUSTED)

        fetch = marker.trial.serving(original)

        def __next__(self: Any) -> Any:
            if get_ident() != marker.thread:
                return original(self)
            marker.fetches()
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

    def _syncs(self, original: _Wrapped) -> _Wrapped:
        marker, begun, ended = self._marker, *self._marks(SYNC)

        def collective(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != marker.thread:
                return original(*args, **kwargs)
            begun(now())
            try:
                return original(*args, **kwargs)
            finally:
                ended(now())

        return collective


def _put_back(owner: Any, name: str, ours: object, before: object) -> None:
    """Undoes a wrap, unless somebody else has wrapped ours: then it stays below theirs, and marks nothing any more."""
    if vars(owner).get(name) is ours:
        setattr(owner, name, before)


def _collector_marks(marker: Marker) -> Callable[[str, dict[str, int]], None]:
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
