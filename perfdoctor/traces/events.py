"""A trace's events: which fields are read, what each is, and to which table it goes.

What today's profiler writes has a type for each category, with the fields that count there and no others; any other
event is a ``TraceEvent``, of which anything may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from perfdoctor.traces.model import UNKNOWN, CollectiveMessage, DeviceKind, HostKind

# What fits a column of int64, with room for sums.
Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
# Kineto writes numbers; its predecessors and other vendors' plugins write some of them as text.
Loose = Whole | float | str | None


class CallArguments(msgspec.Struct, gc=False, frozen=True):
    """Of a call of the runtime."""

    correlation: Loose = None


class DeviceArguments(CallArguments, gc=False, frozen=True):
    """Of what a device did."""

    device: Loose = None
    stream: Loose = None
    grid: tuple[Whole, ...] | str | None = None  # text where an operator launches a kernel of Triton
    block: msgspec.Raw = msgspec.Raw()  # as it stands in the file: it only distinguishes kernels
    collective: str | None = msgspec.field(name="Collective name", default=None)
    sequence: Loose = msgspec.field(name="Seq", default=None)
    group: Loose = msgspec.field(name="Process Group Name", default=None)
    group_size: Loose = msgspec.field(name="Group size", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    sender: Loose = msgspec.field(name="Src Rank", default=None)
    receiver: Loose = msgspec.field(name="Dst Rank", default=None)
    elements_in: Loose = msgspec.field(name="In msg nelems", default=None)
    elements_out: Loose = msgspec.field(name="Out msg nelems", default=None)
    dtype: Loose = None


class OperatorArguments(msgspec.Struct, gc=False, frozen=True):
    """Of an operator, as they stand in the file, because few of them are ever looked at."""

    stack: msgspec.Raw = msgspec.field(name="Call stack", default=msgspec.Raw())
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


class AllocationArguments(msgspec.Struct, gc=False, frozen=True):
    """Of memory that PyTorch's allocator gave away."""

    reserved: Loose = msgspec.field(name="Total Reserved", default=None)
    reserved_on: Loose = msgspec.field(name="Device Id", default=None)


class EventArguments(DeviceArguments, gc=False, frozen=True):
    """Of an event of any category."""

    reserved: Loose = msgspec.field(name="Total Reserved", default=None)
    reserved_on: Loose = msgspec.field(name="Device Id", default=None)
    stack: msgspec.Raw = msgspec.field(name="Call stack", default=msgspec.Raw())
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


NO_ARGUMENTS = EventArguments()


class TraceEvent(msgspec.Struct, gc=False, frozen=True):
    """One event, whatever it is."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    ts: float | None = None
    dur: float | None = None
    pid: Loose = None
    tid: Loose = None
    args: EventArguments = NO_ARGUMENTS


def whole_numbers(values: Sequence[Loose]) -> npt.NDArray[np.int64]:
    """Whole numbers, also those written as text; ``UNKNOWN`` for the rest."""
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(whole_number, values), dtype=np.int64, count=len(values))


def whole_number(value: Loose) -> int:
    """One of them."""
    if isinstance(value, str):
        try:
            number = int(value, 0)
        except ValueError:
            return UNKNOWN
        return number if abs(number) < 2**62 else UNKNOWN
    if value is None or not -(2.0**62) < value < 2.0**62:
        return UNKNOWN
    return int(value)


def product(sizes: tuple[int, ...] | str | None) -> int:
    """Of the sides of a grid; ``UNKNOWN`` without any, as text, or where it is out of all measure.

    A grid of no blocks ran nothing: some profilers write it where they do not know the grid.
    """
    if not sizes or isinstance(sizes, str):
        return UNKNOWN
    found = math.prod(sizes)
    return found if 0 < found < 2**62 else UNKNOWN


def message(arguments: DeviceArguments) -> CollectiveMessage:
    """What a collective carried."""
    sends = (arguments.collective or "").startswith("send")
    return CollectiveMessage(
        name=arguments.collective or "",
        sequence=whole_number(arguments.sequence),
        group="" if arguments.group is None else str(arguments.group),
        group_size=whole_number(arguments.group_size),
        elements=max(whole_number(arguments.elements_in), whole_number(arguments.elements_out)),
        dtype="" if arguments.dtype is None else str(arguments.dtype),
        members="" if arguments.group_ranks is None else str(arguments.group_ranks),
        peer=whole_number(arguments.receiver if sends else arguments.sender),
    )


# Categories in lower case, from Kineto 2020 (Operator, Kernel, Memcpy) to today.
DEVICE_CATEGORIES = {
    "kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY,
    "memcpy": DeviceKind.COPY,
    "gpu_memset": DeviceKind.SET,
    "memset": DeviceKind.SET,
}
HOST_CATEGORIES = {
    "cpu_op": HostKind.OPERATOR,
    "operator": HostKind.OPERATOR,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
}
# ``cuda_`` on AMD's GPUs too; ``xpu_runtime`` and ``privateuse1_runtime`` elsewhere.
CALL_CATEGORIES = frozenset(
    ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "xpu_runtime", "xpu_driver", "glow_runtime")
)
# Neither work nor waiting: spans of the profiler itself, and copies of host annotations on a device's lane.
IGNORED = frozenset(("trace", "overhead", "gpu_user_annotation", "cuda_profiler_range", "cuda_sync", "ac2g", "fwdbwd"))
# Phases of the trace event format that carry no duration: metadata, instants, counters, flows, asynchronous spans,
# samples, objects, marks, memory dumps, clock and context events.
NO_DURATION = frozenset("MIiCstfbneSTFPNODRVvc(),")


class TargetTable(IntEnum):
    """Where a row goes, in the order in which the rows of a piece are laid out."""

    HOST = 0
    CALLS = 1
    DEVICE = 2


RowKind = tuple[TargetTable, int]
KINDS: dict[str, RowKind] = {
    **{category: (TargetTable.HOST, kind) for category, kind in HOST_CATEGORIES.items()},
    **dict.fromkeys(CALL_CATEGORIES, (TargetTable.CALLS, 0)),
    **{category: (TargetTable.DEVICE, kind) for category, kind in DEVICE_CATEGORIES.items()},
}


class _Range(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An event that lacks nothing."""

    ph: Literal["X"]
    name: Annotated[str, msgspec.Meta(min_length=1)]
    pid: Loose = None
    tid: Loose = None
    ts: float
    dur: float


class _Operator(_Range, gc=False, frozen=True, kw_only=True):
    args: OperatorArguments = OperatorArguments()


class _Call(_Range, gc=False, frozen=True, kw_only=True):
    args: CallArguments = CallArguments()


class _OnDevice(_Range, gc=False, frozen=True, kw_only=True):
    args: DeviceArguments = DeviceArguments()


class _Allocation(msgspec.Struct, gc=False, frozen=True):
    ph: Literal["i"]
    args: AllocationArguments = AllocationArguments()


class _Passed(msgspec.Struct, gc=False, frozen=True):
    """An event of which nothing is read."""

    ph: Literal["X", "i", "s", "t", "f"]


def _of_category(category: str, base: type[msgspec.Struct]) -> Any:
    return msgspec.defstruct(category, [], bases=(base,), tag_field="cat", tag=category, gc=False, frozen=True)


_BASES: Mapping[str, type[msgspec.Struct]] = MappingProxyType({
    "cpu_op": _Operator,
    "user_annotation": _Range,
    "python_function": _Range,
    "cuda_runtime": _Call,
    "cuda_driver": _Call,
    "kernel": _OnDevice,
    "gpu_memcpy": _OnDevice,
    "gpu_memset": _OnDevice,
})  # fmt: skip
_ROWS: dict[Any, RowKind] = {_of_category(category, base): KINDS[category] for category, base in _BASES.items()}
# Where the events of a type go; what is not here goes nowhere.
KIND_OF: Mapping[Any, RowKind] = MappingProxyType(_ROWS)
ALLOCATION = _of_category("cpu_instant_event", _Allocation)
_PASSED = [
    _of_category(category, _Passed)
    for category in ("ac2g", "fwdbwd", "gpu_user_annotation", "overhead", "cuda_sync", "Trace")
]
# An event as today's profiler writes it.
ExactEvent: Any = reduce(or_, (*_ROWS, ALLOCATION, *_PASSED))
