"""Changes the settings of a job under trial from within: one method for each kind of change."""

from __future__ import annotations

import ast
import gc
import inspect
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, wraps
from typing import Any

# So many batches of a loader are kept and given again and again, where that is tried.
KEPT_BATCHES = 4
# Objects made until these steps live as long as the job: optimizers make their state in the first.
FROZEN_AFTER_STEP = 2
# Set in a trainer that was bound to its cores; its loader workers inherit the variable, however they are started.
_BOUND = "PERFDOCTOR_TREAT_BOUND"
# Arguments of a loader that mean nothing without workers.
OF_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout", "worker_init_fn")

# Which loaders get another number of workers: those that have fewer, or that have more.
MORE, FEWER = "more", "fewer"


def changes_workers(side: Any, now: Any, number: Any) -> bool:
    """Whether a loader with so many workers (None is 0) gets another number: of several, none goes the other way."""
    return number is None or side is None or ((now or 0) < number if side == MORE else (now or 0) > number)


class Changes:
    """The changes that are tried together.

    Args:
        wanted: kind of change to its value; the methods below are named like the kinds.
        notes: takes what was changed, and where the job makes what can be changed.
        steps: reports steps.
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
        if "staged" in self._wanted:
            self._check_staged(self._wanted["staged"])
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
        for kind in ("flags", "matmul_precision", "sharing", "preload", "affinity", "cached_batches", "modules"):
            if kind in self._wanted:
                getattr(self, f"_{kind}")(self._wanted[kind])

    def _applied(self, *changes: str) -> None:
        for change in changes:
            self._notes.fact("applied", change=change)

    def _check_staged(self, copies: Any) -> None:
        """Whether this process sees copies in memory in place of the files that it reads."""
        with suppress(OSError):
            if copies and all(os.path.samefile(place, copy) for place, copy in copies.items()):
                self._applied("staged")

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
            started = {
                "method": _start_method(arguments.get("multiprocessing_context")),
                "importable": _script_can_be_imported(),
            }
            name = type(loader).__name__
            self._notes.fact("loader", name=name, iterable=iterable, values=values, **started, **self._notes.place())
            # Each worker of an iterable dataset has all of it: their number is not free to change.
            if not wanted or (iterable and "num_workers" in wanted):
                return
            side = self._wanted.get("workers")
            if not changes_workers(side, arguments.get("num_workers"), wanted.get("num_workers")):
                return
            arguments.update(wanted)
            if not arguments.get("num_workers"):
                for name in OF_WORKERS:
                    arguments.pop(name, None)
            self._applied("loader", *self._wanted.keys() & {"workers"})  # that says which loaders

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

    def _preload(self, modules: list[str]) -> None:
        """What a fork server imports before it forks."""
        multiprocessing.set_forkserver_preload(modules)
        self._applied("preload")

    # --- cores

    def _affinity(self, shares: list[list[list[int]]]) -> None:
        """Binds whoever makes steps or starts loader workers to its cores, and the workers to theirs."""
        from torch.utils.data import _utils, dataloader

        def bind_workers() -> None:
            rank = _local_rank(len(shares))
            if os.environ.get(_BOUND) and rank is not None and shares[rank][1]:
                _bind(shares[rank][1])

        def bind_trainer(_: int = 0) -> None:
            if bind_trainer in self._steps.after:
                self._steps.after.remove(bind_trainer)
            rank = _local_rank(len(shares))
            # Not to cores that the job itself may not use.
            if not os.environ.get(_BOUND) and rank is not None and {*shares[rank][0]} <= os.sched_getaffinity(0):
                _bind(shares[rank][0])
                os.environ[_BOUND] = "1"
                self._applied("affinity")

        worker: Any = _utils.worker
        worker._worker_loop = _after(bind_workers, worker._worker_loop)
        iterator: Any = dataloader._MultiProcessingDataLoaderIter
        iterator.__init__ = _after(bind_trainer, iterator.__init__)
        self._steps.after.append(bind_trainer)

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


def _after(first: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does something else first; by its name it is found like the original, as pickle wants it."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        first()
        return original(*args, **kwargs)

    return call


def _start_method(context: Any) -> str:
    """How a loader with this argument starts its workers."""
    if context is not None:
        return context if isinstance(context, str) else str(context.get_start_method())
    chosen = multiprocessing.get_start_method(allow_none=True)  # without: it could not be chosen any more
    return chosen or multiprocessing.get_all_start_methods()[0]


@cache
def _script_can_be_imported() -> bool:
    """Whether the script trains only where it is the main module, so that processes of its own may import it."""
    try:
        with open(sys.modules["__main__"].__file__ or "", "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the job has printed them already
            tree = ast.parse(file.read())
    except (KeyError, AttributeError, OSError, SyntaxError, ValueError):
        return False
    tests = [node.test for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Compare)]
    return any(isinstance(one.left, ast.Name) and one.left.id == "__name__" for one in tests)


def _local_rank(ranks: int) -> int | None:
    """Which of the trainers of this host this process is; None where that cannot be determined."""
    if ranks == 1:
        return 0
    said = os.environ.get("LOCAL_RANK") or os.environ.get("RANK")
    return int(said) % ranks if said else None


def _bind(cores: list[int]) -> None:
    """Binds all threads of this process, and so those that they start."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it may have ended
            os.sched_setaffinity(int(thread), cores)


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
