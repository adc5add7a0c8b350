"""Changes the settings of a job under trial from within: one method for each kind of change."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

# So many batches of a loader are kept and given again and again, where that is tried.
KEPT_BATCHES = 4
# Objects made until these steps live as long as the job: optimizers make their state in the first.
FROZEN_AFTER_STEP = 2
# Arguments of a loader that mean nothing without workers.
_OF_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout", "worker_init_fn")


class Changes:
    """The changes that are tried together.

    Args:
        wanted: kind of change to its value; the methods below are named like the kinds.
        notes: takes what was changed, and where the job makes what can be changed.
        steps: tells of steps.
    """

    def __init__(self, wanted: dict[str, Any], notes: Any, steps: Any) -> None:
        self._wanted = wanted
        self._notes = notes
        self._steps = steps
        self._torch: Any = None

    def before_torch(self) -> None:
        """What does not need torch."""
        self._notes.fact("python")
        self._watch_collect()
        if "gc" in self._wanted:
            self._steps.after.append(self._freeze)

    def install(self, torch: Any) -> None:
        """What is done when torch has been imported."""
        self._torch = torch
        self._notes.fact("torch", version=torch.__version__, threads=torch.get_num_threads())
        self._watch_loaders()
        self._watch_optimizers()
        self._watch_threads()
        self._watch_anomaly()
        if torch.distributed.is_available():
            self._watch_ddp()
        for kind in ("flags", "matmul_precision", "sharing", "cached_batches", "modules"):
            if kind in self._wanted:
                getattr(self, f"_{kind}")(self._wanted[kind])

    def _applied(self, change: str) -> None:
        self._notes.fact("applied", change=change)

    # --- arguments of torch's own classes

    def _wrap_init(self, owner: Any, around: Callable[[Any, dict[str, Any]], None]) -> None:
        """Lets a function see and change the arguments with which objects of a class are made."""
        original = owner.__init__
        signature = inspect.signature(original)

        @wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError:  # the original says what is wrong
                original(self, *args, **kwargs)
                return
            around(self, bound.arguments)
            original(*bound.args, **bound.kwargs)

        owner.__init__ = __init__

    def _watch_loaders(self) -> None:
        from torch.utils.data import DataLoader, IterableDataset

        wanted = self._wanted.get("loader")

        def made(loader: Any, arguments: dict[str, Any]) -> None:
            iterable = isinstance(arguments.get("dataset"), IterableDataset)
            values = {name: arguments.get(name) for name in ("num_workers", "persistent_workers", "pin_memory")}
            name = type(loader).__name__
            self._notes.fact("loader", name=name, iterable=iterable, values=values, **self._notes.place())
            # Each worker of an iterable dataset has all of it: their number is not free to change.
            if not wanted or (iterable and "num_workers" in wanted):
                return
            arguments.update(wanted)
            if not arguments.get("num_workers"):
                for name in _OF_WORKERS:
                    arguments.pop(name, None)
            self._applied("loader")

        self._wrap_init(DataLoader, made)

    def _watch_optimizers(self) -> None:
        from torch import optim

        wanted = self._wanted.get("optimizer")

        def made(optimizer: Any, arguments: dict[str, Any]) -> None:
            known = inspect.signature(type(optimizer).__init__).parameters
            values = {name: arguments.get(name) for name in ("fused", "foreach") if name in known}
            name = type(optimizer).__name__
            params = arguments.get("params")
            if not isinstance(params, (list, tuple)) and params is not None:
                params = arguments["params"] = list(params)
            self._notes.fact(
                "optimizer", name=name, options=sorted(values), values=values, **shape_of(params), **self._notes.place()
            )
            if wanted and all(option in known for option in wanted) and not any(values.values()):
                arguments.update(wanted)
                self._applied("optimizer")

        for owner in {one for one in vars(optim).values() if inspect.isclass(one)}:
            if issubclass(owner, optim.Optimizer) and owner is not optim.Optimizer and "__init__" in vars(owner):
                self._wrap_init(owner, made)

    def _watch_ddp(self) -> None:
        from torch.nn.parallel import DistributedDataParallel

        wanted = self._wanted.get("ddp")

        def made(_: Any, arguments: dict[str, Any]) -> None:
            self._notes.fact("ddp", name="DistributedDataParallel", **self._notes.place())
            if wanted:
                arguments.update(wanted)
                self._applied("ddp")

        self._wrap_init(DistributedDataParallel, made)

    # --- torch's switches

    def _watch_threads(self) -> None:
        torch, wanted = self._torch, self._wanted.get("threads")
        original = torch.set_num_threads
        if wanted:
            original(wanted)
            self._applied("threads")

        @wraps(original)
        def set_num_threads(count: int) -> None:
            # A loader's worker sets its own number, which is right.
            if str(sys._getframe(1).f_globals.get("__name__")).startswith("torch."):
                original(count)
                return
            self._notes.fact("threads", name="set_num_threads", values={"threads": count}, **self._notes.place())
            original(wanted or count)

        torch.set_num_threads = set_num_threads

    def _watch_anomaly(self) -> None:
        torch, off = self._torch, self._wanted.get("no_anomaly_detection")
        original = torch.set_anomaly_enabled

        @wraps(original)
        def set_anomaly_enabled(mode: bool, *args: Any, **kwargs: Any) -> None:
            if mode:
                self._notes.fact("anomaly", **self._notes.place())
                if off:
                    self._applied("no_anomaly_detection")
            original(mode and not off, *args, **kwargs)

        torch.set_anomaly_enabled = set_anomaly_enabled

    def _flags(self, flags: dict[str, Any]) -> None:
        """Attributes below torch, by their dotted names."""
        for name, value in flags.items():
            *path, last = name.split(".")
            owner = self._torch
            for part in path:
                owner = getattr(owner, part)
            setattr(owner, last, value)
        self._applied("flags")

    def _matmul_precision(self, precision: str) -> None:
        self._torch.set_float32_matmul_precision(precision)
        self._applied("matmul_precision")

    def _sharing(self, strategy: str) -> None:
        self._torch.multiprocessing.set_sharing_strategy(strategy)
        self._applied("sharing")

    # --- garbage collection

    def _watch_collect(self) -> None:
        original, every = gc.collect, self._wanted.get("collect_every")
        calls = 0

        @wraps(original)
        def collect(*args: Any, **kwargs: Any) -> int:
            nonlocal calls
            calls += 1
            if place := self._notes.place():
                self._notes.fact("collect", **place)
                if every and calls % every:
                    self._applied("collect_every")
                    return 0
            return original(*args, **kwargs)

        gc.collect = collect

    def _freeze(self, steps: int) -> None:
        if steps == FROZEN_AFTER_STEP:
            self._steps.after.remove(self._freeze)
            gc.freeze()
            gc.set_threshold(*self._wanted["gc"])
            self._applied("gc")

    # --- batches that are kept

    def _cached_batches(self, _: Any) -> None:
        from torch.utils.data import DataLoader

        original = DataLoader.__iter__
        kept: dict[int, list[Any]] = {}

        def batches(loader: Any) -> Iterator[Any]:
            own, served = kept.setdefault(id(loader), []), 0
            for batch in original(loader) if len(own) < KEPT_BATCHES else ():
                own[served:] = [batch]
                served += 1
                yield batch
                if served == KEPT_BATCHES:
                    break
            total = _length(loader)
            while len(own) == KEPT_BATCHES and (total is None or served < total):
                self._applied("cached_batches")
                yield own[served % KEPT_BATCHES]
                served += 1

        DataLoader.__iter__ = batches  # type: ignore[assignment, method-assign]

    # --- modules, when they are called for the first time

    def _modules(self, change: str) -> None:
        """Changes each module that is called in the first step and in no other one."""
        module = self._torch.nn.Module
        original = module.__call__
        inside = False
        changed: list[Any] = []

        def __call__(called: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside or not called.training or not self._torch.is_grad_enabled():
                return original(called, *args, **kwargs)
            if not any(called is one for one in changed) and any(one.requires_grad for one in called.parameters()):
                changed.append(called)
                self._change_module(change, called)
            inside = True
            try:
                # By its class: `compile` of a module takes hold there.
                return original(called, *args, **kwargs)
            finally:
                inside = False

        def stepped(_: int) -> None:
            self._steps.after.remove(stepped)
            module.__call__ = original

        module.__call__ = __call__
        self._steps.after.append(stepped)

    def _change_module(self, change: str, module: Any) -> None:
        if change == "compile":
            module.compile()
        else:
            module.to(memory_format=self._torch.channels_last)
        self._applied("modules")


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def shape_of(params: Any) -> dict[str, Any]:
    """How many tensors an optimizer updates, their device, and whether there are kernels of convolutions among them."""
    tensors: list[Any] = []
    for one in params or ():
        found = one.get("params") if isinstance(one, dict) else one
        some = found if isinstance(found, (list, tuple)) else [found]  # another iterable could be passed only once
        tensors += [tensor for tensor in some if hasattr(tensor, "dim")]
    device = tensors[0].device.type if tensors else None
    return {"tensors": len(tensors), "device": device, "kernels": any(one.dim() == 4 for one in tensors)}
