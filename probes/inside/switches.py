"""Settings of a training process that can be switched between two steps, and back: for ``diagnose(treat=True)``.

Each kind of change has the name and the values that the start hook of `perfdoctor treat` knows it by
(``probes/treated/changes.py``). What cannot be taken back exactly is not here: memory formats and compiled modules.
"""

from __future__ import annotations

import gc
import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

# Below these lies what is not the user's own.
_FOLDERS = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
_LIBRARIES = tuple({str(path) for folder in _FOLDERS for path in (folder, folder.resolve())})


class Switch(Protocol):
    """One setting.

    Attributes:
        held: it has taken hold of something.
    """

    held: bool

    def on(self) -> None:
        """Changes the setting."""

    def off(self) -> None:
        """Puts back what was there, unless the script has set something else meanwhile."""


class IntraOpThreads:
    """The threads of an operation (``torch.set_num_threads``)."""

    def __init__(self, count: int) -> None:
        self.held = False
        self._count = self._before = count

    def on(self) -> None:
        """Changes their number for the thread that trains."""
        import torch

        self._before = torch.get_num_threads()
        torch.set_num_threads(self._count)
        self.held = True

    def off(self) -> None:
        """Puts their number back."""
        import torch

        if torch.get_num_threads() == self._count:
            torch.set_num_threads(self._before)


class Collector:
    """The objects that are there are left out of garbage collection, and young ones are looked through more rarely."""

    def __init__(self, thresholds: list[int]) -> None:
        self.held = False
        self._wanted = self._before = tuple(thresholds)
        self._frozen = False

    def on(self) -> None:
        """Freezes what is there; what the script has frozen itself could not be distinguished from that afterwards."""
        if gc.get_freeze_count():
            return
        self._before = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(*self._wanted)
        self._frozen = self.held = True

    def off(self) -> None:
        """Gives everything back to the collector."""
        if self._frozen:
            self._frozen = False
            gc.unfreeze()
            if gc.get_threshold() == self._wanted:
                gc.set_threshold(*self._before)


class RareCollect:
    """Of the script's own calls of ``gc.collect`` only some are made."""

    def __init__(self, every: int) -> None:
        self.held = False
        self._every = every
        self._calls = 0
        self._undo: Callable[[], None] = lambda: None

    def on(self) -> None:
        """Stands before ``gc.collect``."""
        original = gc.collect

        def rarely(*args: Any, **kwargs: Any) -> int:
            if users_line(sys._getframe(1)):
                self._calls += 1
                if self._calls % self._every:
                    self.held = True
                    return 0
            return original(*args, **kwargs)

        self._undo = replaced(gc, "collect", rarely)

    def off(self) -> None:
        """Lets every call through again."""
        self._undo()


class OptimizerOption:
    """An option of optimizers, for as long as each of their steps takes: nothing that is saved between them has it."""

    def __init__(self, wanted: Mapping[str, bool]) -> None:
        ((self._option, self._value),) = wanted.items()
        self.held = False
        self._handles: list[Any] = []
        self._changed: list[tuple[dict[str, Any], Any]] = []
        self._fits: dict[int, bool] = {}

    def on(self) -> None:
        """Puts hooks around all steps."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self._handles = [
            register_optimizer_step_pre_hook(self._begins),
            register_optimizer_step_post_hook(lambda *_: self._put_back()),
        ]

    def off(self) -> None:
        """Takes the hooks out."""
        while self._handles:
            self._handles.pop().remove()
        self._put_back()

    def _begins(self, optimizer: Any, *_: Any) -> None:
        self._put_back()  # of a step that has raised
        if id(optimizer) not in self._fits:
            self._fits[id(optimizer)] = all(_takes(self._option, optimizer, group) for group in optimizer.param_groups)
        if not self._fits[id(optimizer)]:
            return
        for group in optimizer.param_groups:
            self._changed.append((group, group[self._option]))
            group[self._option] = self._value
        self.held = True

    def _put_back(self) -> None:
        while self._changed:
            group, before = self._changed.pop()
            group[self._option] = before


def _takes(option: str, optimizer: Any, group: Mapping[str, Any]) -> bool:
    """Whether a group's parameters can be updated in another way in the middle of the training."""
    import torch

    taken = any(group.get(name) for name in ("fused", "foreach", "differentiable", "capturable"))
    if option not in group or taken or isinstance(group.get("lr"), torch.Tensor):
        return False
    if option != "fused":
        return True
    # The kernels that do all in one call go through memory as it lies, on the device that counts the steps.
    tensors = [one for one in group["params"] if one.grad is not None]
    steps = [optimizer.state[one].get("step") for one in tensors if one in optimizer.state]
    counted_elsewhere = {one.device for one in steps if isinstance(one, torch.Tensor)} - {one.device for one in tensors}
    return torch.get_default_dtype() is torch.float32 and not counted_elsewhere and all(map(_is_plain, tensors))


def _is_plain(tensor: Any) -> bool:
    gradient = tensor.grad
    return bool(
        tensor.is_floating_point() and tensor.is_contiguous() and not gradient.is_sparse and gradient.is_contiguous()
    )


class NoAnomalyDetection:
    """Anomaly detection of autograd is off, whatever the script asks for; what it asked for counts again afterwards."""

    def __init__(self, _: bool) -> None:
        self.held = False
        self._asked: tuple[bool, bool] = False, True
        self._undo: Callable[[], None] = lambda: None

    def on(self) -> None:
        """Turns it off."""
        import torch

        original = torch.set_anomaly_enabled
        self._asked = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        self.held = self.held or self._asked[0]

        @wraps(original)
        def asked(mode: bool, check_nan: bool = True) -> None:
            self._asked = mode, check_nan
            self.held = self.held or mode

        put_back = replaced(torch, "set_anomaly_enabled", asked)
        original(False)

        def undo() -> None:
            put_back()
            original(*self._asked)

        self._undo = undo

    def off(self) -> None:
        """Puts back what the script has asked for."""
        self._undo()
        self._undo = lambda: None


class Flags:
    """Attributes below torch, by their dotted names."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.held = False
        self._wanted = wanted
        self._before: dict[str, Any] = {}

    def on(self) -> None:
        """Sets them."""
        for name, value in self._wanted.items():
            owner, last = _place(name)
            self._before[name] = getattr(owner, last)
            setattr(owner, last, value)
        self.held = True

    def off(self) -> None:
        """Puts them back."""
        while self._before:
            name, before = self._before.popitem()
            owner, last = _place(name)
            if getattr(owner, last) == self._wanted[name]:
                setattr(owner, last, before)


def _place(name: str) -> tuple[Any, str]:
    import torch

    owner: Any = torch
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, last


class MatmulPrecision:
    """``torch.set_float32_matmul_precision``, and the newer settings of single backends that it sets as well."""

    _ALSO_SET = ("backends.cuda.matmul", "backends.mkldnn.matmul")

    def __init__(self, wanted: str) -> None:
        self.held = False
        self._wanted = wanted
        self._before = ""
        self._of_backends: list[tuple[Any, str]] = []

    def on(self) -> None:
        """Sets it; where the script has mixed old and new settings, torch says so with a RuntimeError."""
        import torch

        self._before = torch.get_float32_matmul_precision()
        owners = [getattr(*_place(name)) for name in self._ALSO_SET]
        self._of_backends = [(one, one.fp32_precision) for one in owners if hasattr(one, "fp32_precision")]
        torch.set_float32_matmul_precision(self._wanted)
        self.held = True

    def off(self) -> None:
        """Puts it back."""
        import torch

        if self._before and torch.get_float32_matmul_precision() == self._wanted:
            torch.set_float32_matmul_precision(self._before)
            for owner, before in self._of_backends:
                owner.fp32_precision = before
        self._before = ""


KINDS: Mapping[str, Callable[[Any], Switch]] = {
    "threads": IntraOpThreads,
    "gc": Collector,
    "collect_every": RareCollect,
    "optimizer": OptimizerOption,
    "no_anomaly_detection": NoAnomalyDetection,
    "flags": Flags,
    "matmul_precision": MatmulPrecision,
}
"""What can be switched, by the kinds of changes that ``perfdoctor.treat`` knows."""


class Switches:
    """Settings that are switched together.

    Args:
        wanted: kind of change to its value.
    """

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._switches = {kind: KINDS[kind](value) for kind, value in wanted.items()}
        self._on: list[Switch] = []

    def on(self) -> None:
        """Switches all on; none if one of them raises."""
        try:
            for switch in self._switches.values():
                self._on.append(switch)
                switch.on()
        except BaseException:
            self.off()
            raise

    def off(self) -> None:
        """Switches those off that are on, all of them even if one raises."""
        try:
            while self._on:
                self._on.pop().off()
        finally:
            if self._on:
                self.off()

    @property
    def held(self) -> list[str]:
        """The kinds that have taken hold of something."""
        return [kind for kind, switch in self._switches.items() if switch.held]


def replaced(owner: Any, name: str, ours: Callable[..., Any]) -> Callable[[], None]:
    """Puts a function in the place of another one; returns what takes it out, unless it was replaced as well."""
    before = getattr(owner, name)
    setattr(owner, name, ours)

    def undo() -> None:
        if getattr(owner, name) is ours:
            setattr(owner, name, before)

    return undo


def users_line(frame: FrameType | None) -> str:
    """Which line of the user's own files a call comes from: ``FILE:LINE``; "" if from none."""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((*_LIBRARIES, "<")) and not _ours(frame):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("perfdoctor.")
