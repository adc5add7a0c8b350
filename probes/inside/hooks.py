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
from typing import TYPE_CHECKING, Any

from perfdoctor.probes.inside import patches as entries
from perfdoctor.probes.inside.patches import Entry, Marker, Wrapper
from perfdoctor.probes.inside.ring import BEGIN, END, OPTIMIZER
from perfdoctor.probes.inside.timer import current_accelerator

if TYPE_CHECKING:
    import torch

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
        self.mind_compiler()
        return self._put_in()

    def remove(self) -> None:
        """Takes all hooks out again."""
        self._take_out()
        if self._compiler is not None:
            self._compiler.remove_start_callback(self._compiling)
            self._compiler.remove_end_callback(self._compiled)
            self._compiler = None
            self._marker.compiler_tells = False

    def mind_compiler(self) -> None:
        """Lets torch.compile see torch as it is, once it is loaded: optimizers load it with their first step.

        What it compiles holds only as long as the functions that it saw on the way stay what they are: it would
        compile all models anew when perfdoctor steps aside.
        """
        callback = sys.modules.get("torch._dynamo.callback")
        if callback is None or self._compiler is not None or not hasattr(callback, "callback_handler"):
            return
        self._compiler = callback.callback_handler
        self._compiler.register_start_callback(self._compiling)
        self._compiler.register_end_callback(self._compiled)
        self._marker.compiler_tells = True

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
        wrapped: list[tuple[Any, str, Wrapper]] = [
            (torch.nn.Module, "__call__", entries.calls),
            (torch.autograd, "backward", entries.works),
            (torch.autograd, "grad", entries.works),
            (DataLoader, "__iter__", entries.starts),
            (getattr(dataloader, "_BaseDataLoaderIter", None), "__next__", entries.fetches),
            (torch, "compile", self._compiles),
        ]
        if torch.distributed.is_available():
            from torch.distributed import distributed_c10d

            for place in (torch.distributed, distributed_c10d):
                wrapped += [(place, name, entries.syncs) for name in COLLECTIVES]
        # Without a device nothing is moved, and ``to`` is called in many a model.
        if current_accelerator() is not None:
            wrapped += [(torch.Tensor, name, entries.moves) for name in ("to", "cuda")]
        for owner, name, wrapper in wrapped:
            if owner is None or not hasattr(owner, name):
                missing.append(name)
            else:
                self._wrap(owner, name, wrapper)
        self._hook_optimizers(optim)
        collected = entries.collects(self._marker)
        gc.callbacks.append(collected)
        self._undo.append(lambda: gc.callbacks.remove(collected))
        return missing

    def _take_out(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        before = vars(owner).get(name)
        inherited = before is None
        before = before or getattr(owner, name)
        ours = functools.wraps(before)(wrapper(self._marker, before))
        setattr(owner, name, ours)
        self._undo.append(functools.partial(_put_back, owner, name, ours, None if inherited else before))

    def _hook_optimizers(self, optim: Any) -> None:
        marker = self._marker
        begun, ended = marker.marker(BEGIN | OPTIMIZER), marker.marker(END | OPTIMIZER)

        def begins(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
            if get_ident() != marker.thread:
                return None
            marker.worked = True
            if not marker.loader_seen:
                marker.optimizes(id(optimizer))
            begun(now())
            return self._with_closure(args, kwargs) if kwargs or len(args) > 1 else None

        def ends(_: object, args: Any, kwargs: Any) -> None:
            if get_ident() == marker.thread:
                ended(now())
                if not marker.loader_seen:
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
            return args, {**kwargs, "closure": entries.closes(self._marker, kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], entries.closes(self._marker, args[1]), *args[2:]), kwargs
        return None

    def _compiles(self, _: Marker, original: Entry) -> Entry:
        def compile(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self.mind_compiler()

        return compile


def _put_back(owner: Any, name: str, ours: object, before: object | None) -> None:
    """Undoes a wrap, unless somebody else has wrapped ours: then it stays below theirs, and marks nothing any more.

    Args:
        owner: a module or class.
        name: what was wrapped in it.
        ours: what stands there now.
        before: what stood there; None if the class inherits it.
    """
    if vars(owner).get(name) is not ours:
        return
    if before is None:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
