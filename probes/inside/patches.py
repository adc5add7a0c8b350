"""Where torch is patched: wrappers and hooks that mark a step's phases are put in, and taken out again without a trace.

Optimizers have global hooks. Global module hooks would run for every submodule and switch off torch's fast path (some
µs for each), so the entry of all modules, ``Module.__call__``, is wrapped instead: inside an outermost call that costs
two comparisons. The other entries are wrapped likewise, and go back to what they were.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from typing import Any

from perfdoctor.probes.inside import wrappers
from perfdoctor.probes.inside.device_clock import current_accelerator
from perfdoctor.probes.inside.ring import RingWriter
from perfdoctor.probes.inside.same_batch import SameBatch
from perfdoctor.probes.inside.training_loop import TrainingLoop
from perfdoctor.probes.inside.wrappers import Entry

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


class Patches:
    """All patches of one session.

    Args:
        loop: what to mark.
        ring: takes the marks that wait, once they are many.
        same_batch: stands between a loader and the training.
    """

    def __init__(self, loop: TrainingLoop, ring: RingWriter, same_batch: SameBatch) -> None:
        self._loop = loop
        self._ring = ring
        self._same_batch = same_batch
        self._undo: list[Callable[[], None]] = []
        self._compiler: Any = None

    def install(self) -> list[str]:
        """Puts all patches in; returns the names of those entries that this torch does not have."""
        self.mind_compiler()
        return self._put_in()

    def remove(self) -> None:
        """Takes all patches out again."""
        self._take_out()
        if self._compiler is not None:
            self._compiler.remove_start_callback(self._compiling)
            self._compiler.remove_end_callback(self._compiled)
            self._compiler = None
            self._loop.asks_compiler = True

    def mind_compiler(self) -> None:
        """Lets torch.compile see torch as it is, once it is loaded: optimizers load it with their first step.

        What it compiles holds only as long as the functions that it saw on the way stay what they are: it would
        compile all models anew when perfdoctor detaches.
        """
        callback = sys.modules.get("torch._dynamo.callback")
        if callback is None or self._compiler is not None or not hasattr(callback, "callback_handler"):
            return
        self._compiler = callback.callback_handler
        self._compiler.register_start_callback(self._compiling)
        self._compiler.register_end_callback(self._compiled)
        self._loop.asks_compiler = False

    def _compiling(self, _: object) -> None:
        self._take_out()

    def _compiled(self, _: object) -> None:
        if not self._undo:
            self._put_in()

    def _put_in(self) -> list[str]:
        missing = []
        for owner, name, wrapper in self._entries():
            if owner is None or not hasattr(owner, name):
                missing.append(name)
            else:
                self._wrap(owner, name, wrapper)
        self._hook_optimizers()
        collected = wrappers.garbage_collection(self._loop, self._ring.flush_many)
        gc.callbacks.append(collected)
        self._undo.append(lambda: gc.callbacks.remove(collected))
        return missing

    def _take_out(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _entries(self) -> list[tuple[Any, str, Callable[[TrainingLoop, Entry], Entry]]]:
        """What is wrapped: the module or class that has it, its name, and what makes the wrapper."""
        import torch
        from torch.utils.data import DataLoader, dataloader

        found: list[tuple[Any, str, Callable[[TrainingLoop, Entry], Entry]]] = [
            (torch.nn.Module, "__call__", wrappers.module_call),
            (torch.autograd, "backward", wrappers.backward_pass),
            (torch.autograd, "grad", wrappers.backward_pass),
            (DataLoader, "__iter__", wrappers.loader_start),
            (getattr(dataloader, "_BaseDataLoaderIter", None), "__next__", self._loader_next),
            (torch, "compile", self._compile),
        ]
        if torch.distributed.is_available():
            from torch.distributed import distributed_c10d

            for place in (torch.distributed, distributed_c10d):
                found += [(place, name, wrappers.collective) for name in COLLECTIVES]
        # Without a device nothing is moved, and ``to`` is called in many a model.
        if current_accelerator() is not None:
            found += [(torch.Tensor, name, wrappers.tensor_move) for name in ("to", "cuda")]
        return found

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[TrainingLoop, Entry], Entry]) -> None:
        own = vars(owner).get(name)
        original = own or getattr(owner, name)
        ours = functools.wraps(original)(wrapper(self._loop, original))
        setattr(owner, name, ours)
        self._undo.append(functools.partial(_put_back, owner, name, ours, own))

    def _hook_optimizers(self) -> None:
        from torch.optim import optimizer

        begins, ends = wrappers.optimizer_hooks(self._loop)
        before = optimizer.register_optimizer_step_pre_hook(begins)
        after = optimizer.register_optimizer_step_post_hook(ends)
        self._undo += [before.remove, after.remove]

    def _loader_next(self, loop: TrainingLoop, original: Entry) -> Entry:
        return wrappers.loader_next(loop, original, self._same_batch.serving(original))

    def _compile(self, _: TrainingLoop, original: Entry) -> Entry:
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
