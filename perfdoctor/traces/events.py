"""The events of a profiler trace as they stand in the file, with the few fields that perfdoctor reads.

The format is Chrome's trace event format as Kineto writes it (pytorch/kineto, ``output_json.cpp``): times are
microseconds, whatever their resolution. Fields that are not named here are skipped without being made into objects,
which is what makes reading fast.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

# What fits a column of int64, with room for sums.
Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
# Kineto writes numbers; its predecessors and other vendors' plugins write some of them as text.
Loose = Whole | float | str | None


class Arguments(msgspec.Struct, gc=False, frozen=True):
    """An event's ``args``."""

    correlation: Loose = None
    device: Loose = None
    stream: Loose = None
    grid: tuple[Whole, ...] | None = None
    block: msgspec.Raw = msgspec.Raw()  # as it stands in the file: it only tells kernels apart
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
    reserved: Loose = msgspec.field(name="Total Reserved", default=None)
    reserved_on: Loose = msgspec.field(name="Device Id", default=None)
    # As they stand in the file, because few of them are ever looked at.
    stack: msgspec.Raw = msgspec.field(name="Call stack", default=msgspec.Raw())
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


NO_ARGUMENTS = Arguments()


class Event(msgspec.Struct, gc=False, frozen=True):
    """One event."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    ts: float | None = None
    dur: float | None = None
    pid: Loose = None
    tid: Loose = None
    args: Arguments = NO_ARGUMENTS


class Document(msgspec.Struct, gc=False):
    """A trace file whose root is an object. What stands beside the events may be of any type."""

    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    base_ns: Any = msgspec.field(name="baseTimeNanoseconds", default=None)
    schema: Any = msgspec.field(name="schemaVersion", default=None)
    host: Any = msgspec.field(name="host_name", default=None)
    with_stack: Any = None
    record_shapes: Any = None
