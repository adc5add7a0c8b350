"""A profiler trace in columns. All times are nanoseconds since the first event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1  # where a trace does not say


class DeviceKind(IntEnum):
    """What a device was given to do."""

    KERNEL = 0
    COPY = 1
    SET = 2


class HostKind(IntEnum):
    """What a range on a host thread stands for."""

    OPERATOR = 0
    ANNOTATION = 1
    PYTHON = 2


@dataclass(frozen=True, slots=True)
class DeviceEvents:
    """What ran on devices, sorted by start; columns of equal length, ``UNKNOWN`` where the file does not say.

    Attributes:
        name: index into ``Trace.names``.
        kind: a ``DeviceKind``.
        correlation: joins an event with the call that launched it.
        blocks: blocks of threads in the kernel's grid.
        geometry: a number for the kernel's grid and block, which distinguishes kernels of one name.
    """

    start: Int64s
    end: Int64s
    name: Int32s
    kind: Int8s
    device: Int32s
    stream: Int64s
    correlation: Int64s
    blocks: Int64s
    geometry: Int64s

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class HostRanges:
    """Operators, annotations and Python functions, sorted by start.

    Attributes:
        thread: index into ``Trace.threads``.
        kind: a ``HostKind``.
        stack: index into ``Trace.stacks``; ``UNKNOWN`` where the file has none, as most have.
        inputs: index into ``Trace.inputs``; ``UNKNOWN`` but for operators whose arithmetic can be counted.
    """

    start: Int64s
    end: Int64s
    name: Int32s
    thread: Int32s
    kind: Int8s
    stack: Int32s
    inputs: Int32s

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of the device's runtime or driver, sorted by start."""

    start: Int64s
    end: Int64s
    name: Int32s
    thread: Int32s
    correlation: Int64s

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class CollectiveMessage:
    """What a collective on a device carried, as far as the file says.

    Attributes:
        sequence: the collective's number within its process group; matches it across ranks.
        elements: the larger of what goes in and what comes out.
        members: the group's ranks as the file writes them, "" where it does not.
        peer: for a send or a receive, the rank at the other end.
    """

    name: str
    sequence: int
    group: str
    group_size: int
    elements: int
    dtype: str
    members: str = ""
    peer: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """A device as the profiler saw it; None where it does not say."""

    index: int
    name: str
    multiprocessors: int | None
    capability: float | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an operator was called with, one entry per argument.

    Attributes:
        shapes: of tensors; () for everything else.
        types: element types of tensors as PyTorch writes them (``float``, ``c10::BFloat16``); () if not reported.
        values: of everything else, as text; () if not reported.
    """

    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's trace.

    Attributes:
        source: the file's name.
        names: texts that the columns refer to by index; some that no row has are among them.
        threads: ``(process, thread)`` as the file writes them.
        stacks: Python stacks of operators as older profilers write them, innermost call first: ``file.py(12): f;…``.
        inputs: what operators whose arithmetic can be counted were called with.
        messages: row of a device event to what the collective carried.
        devices: by the number that device events carry.
        reserved: by the same numbers, the most bytes that PyTorch's allocator had reserved (``profile_memory=True``).
        unknown_categories: categories of duration events that are not known, with how many there were; a device of a
            kind that perfdoctor does not know shows up here.
        rank, world: None where the file does not say.
        origin_ns: the host's clock (Unix time) at time 0, to compare ranks; None where the file has only times since
            boot.
        notes: what could not be read, in sentences.
    """

    source: str
    names: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]
    device: DeviceEvents
    host: HostRanges
    calls: Calls
    stacks: tuple[str, ...] = ()
    inputs: tuple[Inputs, ...] = ()
    messages: Mapping[int, CollectiveMessage] = field(default_factory=dict)
    devices: Mapping[int, DeviceProperties] = field(default_factory=dict)
    reserved: Mapping[int, int] = field(default_factory=dict)
    unknown_categories: Mapping[str, int] = field(default_factory=dict)
    rank: int | None = None
    world: int | None = None
    host_name: str = ""
    origin_ns: int | None = None
    notes: tuple[str, ...] = ()
    events: int = 0

    def matching(self, pattern: re.Pattern[str], rows: Int32s) -> Bools:
        """Which rows have a name in which a pattern is found.

        Args:
            pattern: is searched for in the names that occur only; most names are of other tables.
            rows: a column of indices into ``names``.
        """
        found = names_matching(pattern)
        wanted = np.zeros(max(len(self.names), 1), dtype=np.bool_)
        for name in self.occurring(rows):
            wanted[name] = found[self.names[name]]
        return self.named(wanted, rows)

    def occurring(self, rows: Int32s) -> list[int]:
        """The names that occur in a column of indices into ``names``."""
        found: list[int] = np.flatnonzero(np.bincount(rows)).tolist() if len(rows) else []
        return found

    def named(self, wanted: npt.NDArray[np.bool_], rows: Int32s) -> Bools:
        """Which rows have a name that is wanted.

        Args:
            wanted: one truth value per name.
            rows: a column of indices into ``names``.
        """
        return wanted[rows] if len(rows) else np.zeros(0, dtype=np.bool_)


_MOST_NAMES = 1 << 14  # that a pattern's answers are kept of


class NamesMatching(dict[str, bool]):
    """Whether a pattern is found in a name; searched once for each, since the ranks of a job have the same names."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        super().__init__()
        self._search = pattern.search

    def __missing__(self, name: str) -> bool:
        """Searches a name that is new."""
        if len(self) >= _MOST_NAMES:
            self.clear()
        found = self[name] = self._search(name) is not None
        return found


@cache
def names_matching(pattern: re.Pattern[str]) -> NamesMatching:
    """What is known of the names in which a pattern is found."""
    return NamesMatching(pattern)


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values of a column, each once, ascending."""
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def is_among(values: npt.NDArray[Any], wanted: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which values are among those that are wanted."""
    ordered = np.sort(np.asarray(wanted))
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[place] == values)


def find_launches(trace: Trace) -> Int64s:
    """For each device event, the row of the call that launched it; ``UNKNOWN`` where it is not in the trace."""
    device, calls = trace.device, trace.calls
    if not len(calls):
        return np.full(len(device), UNKNOWN, dtype=np.int64)
    order = np.argsort(calls.correlation, kind="stable")
    sorted_ = calls.correlation[order]
    place = np.minimum(np.searchsorted(sorted_, device.correlation), len(order) - 1)
    found = (sorted_[place] == device.correlation) & (device.correlation > 0)
    return np.where(found, order[place], UNKNOWN)
