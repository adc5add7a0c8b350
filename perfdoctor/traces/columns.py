"""Collects events into columns: the objects of one piece are gone before the next is decoded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.traces.events import (
    ALLOCATION,
    IGNORED,
    KIND_OF,
    KINDS,
    NO_DURATION,
    AllocationArguments,
    EventArguments,
    Loose,
    RowKind,
    TargetTable,
    TraceEvent,
    message,
    product,
    whole_number,
    whole_numbers,
)
from perfdoctor.traces.flops import COUNTED
from perfdoctor.traces.model import (
    UNKNOWN,
    Calls,
    CollectiveMessage,
    DeviceEvents,
    DeviceKind,
    HostKind,
    HostRanges,
    is_among,
)

_NO_STACK = (b"", b'""', b"null")


class Numbering(dict[Any, int]):
    """Numbers things in the order in which they are first asked for."""

    def __missing__(self, thing: Hashable) -> int:
        """The next number."""
        number = self[thing] = len(self)
        return number

    def of(self, things: Iterable[Hashable], count: int) -> npt.NDArray[np.int32]:
        """The numbers of some things."""
        return np.fromiter(map(self.__getitem__, things), dtype=np.int32, count=count)


class Columns:
    """Takes pieces of events, hands out tables.

    Attributes:
        stacks: Python stacks, as the file has them.
        inputs: shapes, types and values of arguments, as the file has them.
        unknown_categories: categories that are not known, and how many duration events they had.
        negative: durations below zero, taken as zero.
        unended: ranges without an end, taken as zero.
        misplaced: events at impossible times, left out.
        unreadable: events that lack what they need (a phase, a category, a time), left out.
        unlinked: device events that do not say which call launched them.
        events: all events, of whatever sort.
        reserved: device to the most bytes that PyTorch's allocator had reserved on it, with ``profile_memory``.
    """

    def __init__(self) -> None:
        self.names = Numbering()
        for name in COUNTED:  # have the lowest numbers, by which they are recognised
            self.names[name]
        self.threads = Numbering()
        self.stacks = Numbering()
        self.inputs = Numbering()
        self._geometries = Numbering()
        self._blocks: list[int] = []
        self.unknown_categories: dict[str, int] = defaultdict(int)
        self.negative = 0
        self.unended = 0
        self.misplaced = 0
        self.unreadable = 0
        self.unlinked = 0
        self.events = 0
        self.reserved: dict[int, int] = defaultdict(int)
        self._device: list[dict[str, Numbers]] = []
        self._host: list[dict[str, Numbers]] = []
        self._calls: list[dict[str, Numbers]] = []
        self._messages: list[tuple[int, CollectiveMessage]] = []
        self._devices_so_far = 0
        self._open: dict[tuple[Loose, Loose], list[TraceEvent]] = defaultdict(list)

    def add(self, events: list[Any]) -> None:
        """Takes the events of one piece."""
        self.events += len(events)
        by_kind = self._sort_loose(events) if events and type(events[0]) is TraceEvent else self._sort_exact(events)
        if by_kind:
            self._add_rows(by_kind)

    def _sort_exact(self, events: list[Any]) -> dict[RowKind, list[Any]]:
        """Events whose types tell what they are."""
        by_type: dict[type, list[Any]] = defaultdict(list)
        for event in events:
            by_type[type(event)].append(event)
        by_kind: dict[RowKind, list[Any]] = defaultdict(list)
        for one, found in by_type.items():
            if (kind := KIND_OF.get(one)) is not None:
                by_kind[kind] += found
        for event in by_type[ALLOCATION]:
            self._note_reserved(event.args)
        return by_kind

    def _sort_loose(self, events: list[TraceEvent]) -> dict[RowKind, list[Any]]:
        """Events that may lack anything."""
        by_category: dict[str | None, list[TraceEvent]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                by_category[event.cat].append(event)
            elif event.ph == "B" or event.ph == "E":
                self._pair(event, by_category)
            elif event.ph == "i":
                self._note_reserved(event.args)
            elif event.ph not in NO_DURATION:
                self.unreadable += 1
        by_kind: dict[RowKind, list[Any]] = defaultdict(list)
        for category, found in by_category.items():
            self._sort_category((category or "").lower(), found, by_kind)
        return by_kind

    def _note_reserved(self, given: AllocationArguments | EventArguments) -> None:
        """What an allocation reports; those on the host have no device."""
        device, reserved = whole_number(given.reserved_on), whole_number(given.reserved)
        if given.reserved is not None and device >= 0:
            self.reserved[device] = max(self.reserved[device], reserved)

    def _pair(self, event: TraceEvent, by_category: dict[str | None, list[TraceEvent]]) -> None:
        """Joins a beginning and an end, which nest on each thread."""
        unended = self._open[event.pid, event.tid]
        if event.ph == "B":
            unended.append(event)
        elif unended and event.ts is not None:
            begun = unended.pop()
            whole = TraceEvent("X", begun.cat, begun.name, begun.ts, event.ts - (begun.ts or 0.0), begun.pid, begun.tid)
            by_category[begun.cat].append(whole)
        else:
            self.unreadable += 1

    def _sort_category(self, category: str, events: list[TraceEvent], by_kind: dict[RowKind, list[Any]]) -> None:
        if (kind := KINDS.get(category)) is not None:
            by_kind[kind] += events
        elif not category:
            self.unreadable += len(events)
        elif category not in IGNORED:
            self.unknown_categories[category] += len(self._complete(events))

    def _complete(self, events: list[Any]) -> list[Any]:
        """The events that have a start and a name; mostly all."""
        found = [event for event in events if event.ts is not None and event.name]
        self.unreadable += len(events) - len(found)
        return found

    def _add_rows(self, by_kind: dict[RowKind, list[Any]]) -> None:
        """Adds to all tables at once, because each operation on columns costs more than some hundred rows."""
        kinds = sorted(by_kind)
        events = [event for kind in kinds for event in by_kind[kind]]
        start = np.array([event.ts for event in events], dtype=np.float64)  # None becomes nan
        names = self.names.of([event.name for event in events], len(events))
        if np.isnan(start).any() or ("" in self.names and (names == self.names[""]).any()):
            complete = {kind: whole for kind in kinds if (whole := self._complete(by_kind[kind]))}
            if complete:
                self._add_rows(complete)
            return
        counts = [len(by_kind[kind]) for kind in kinds]
        columns = {
            "start": start,
            "duration": self._durations(events),
            "name": names,
            "kind": np.repeat(np.array([kind for _, kind in kinds], dtype=np.int8), counts),
        }
        host, calls = (
            sum(count for (table, _), count in zip(kinds, counts, strict=True) if table <= last)
            for last in (TargetTable.HOST, TargetTable.CALLS)
        )
        columns_of = [
            {name: column[rows] for name, column in columns.items()}
            for rows in (slice(host), slice(host, calls), slice(calls, None))
        ]
        if host:
            operators = by_kind.get((TargetTable.HOST, HostKind.OPERATOR), [])
            self._host.append(
                {**columns_of[TargetTable.HOST], **self._of_host(events[:host], operators, columns["name"])}
            )
        if calls > host:
            self._calls.append({**columns_of[TargetTable.CALLS], **self._of_calls(events[host:calls])})
        if len(events) > calls:
            kind = columns_of[TargetTable.DEVICE]["kind"]
            self._device.append({**columns_of[TargetTable.DEVICE], **self._of_device(events[calls:], kind)})

    def _durations(self, events: list[Any]) -> Numbers:
        """In the file's microseconds."""
        duration = np.array([event.dur for event in events], dtype=np.float64)  # None becomes nan
        missing, negative = np.isnan(duration), duration < 0
        self.unended += int(missing.sum())
        self.negative += int(negative.sum())
        return np.where(missing | negative, 0.0, duration)

    def _where(self, events: list[Any]) -> Numbers:
        return self.threads.of([(event.pid, event.tid) for event in events], len(events))

    def _of_host(self, events: list[Any], operators: list[Any], names: Numbers) -> dict[str, Numbers]:
        """What only ranges on the host have; operators come first."""
        stacks = np.full(len(events), UNKNOWN, dtype=np.int32)
        inputs = stacks.copy()
        written = [operator.args.stack for operator in operators]
        if any(written):
            for row, stack in enumerate(map(bytes, written)):
                if stack not in _NO_STACK:
                    stacks[row] = self.stacks[stack]
        for row in np.flatnonzero(names[: len(operators)] < len(COUNTED)).tolist():
            if (given := operators[row].args).shapes:
                inputs[row] = self.inputs[bytes(given.shapes), bytes(given.types), bytes(given.values)]
        return {"thread": self._where(events), "stack": stacks, "inputs": inputs}

    def _of_calls(self, events: list[Any]) -> dict[str, Numbers]:
        return {
            "thread": self._where(events),
            "correlation": whole_numbers([event.args.correlation for event in events]),
        }

    def _of_device(self, events: list[Any], kinds: Numbers) -> dict[str, Numbers]:
        """What only events on a device have; kernels come first."""
        count, kernels = len(events), int((kinds == DeviceKind.KERNEL).sum())
        given = [event.args for event in events]
        correlation = whole_numbers([one.correlation for one in given])
        self.unlinked += int((correlation == UNKNOWN).sum())
        geometry, blocks = np.full((2, count), UNKNOWN, dtype=np.int64)
        shapes = [(one.grid, bytes(one.block)) for one in given[:kernels]]
        geometry[:kernels] = self._geometries.of(shapes, kernels)
        new = islice(self._geometries, len(self._blocks), None)
        self._blocks += [product(grid) for grid, _ in new]
        blocks[:kernels] = np.array(self._blocks, dtype=np.int64)[geometry[:kernels]]
        self._messages += [
            (self._devices_so_far + row, message(one)) for row, one in enumerate(given) if one.collective is not None
        ]
        devices = [one.device for one in given]
        if None in devices:  # the first Kineto put it into pid only
            devices = [event.pid if device is None else device for event, device in zip(events, devices, strict=True)]
        self._devices_so_far += count
        return {
            "device": whole_numbers(devices),
            "stream": whole_numbers([one.stream for one in given]),
            "correlation": correlation,
            "blocks": blocks,
            "geometry": geometry,
        }

    def _mark_steps(self, host: HostRanges) -> None:
        """Until 2021 Kineto wrote the profiler's steps among the operators; nothing is being dispatched by them."""
        steps = [row for name, row in self.names.items() if name.startswith(profiler.STEP_PREFIX)]
        host.kind[is_among(host.name, steps)] = HostKind.ANNOTATION

    def finish(self) -> tuple[DeviceEvents, HostRanges, Calls, dict[int, CollectiveMessage], float]:
        """The tables, sorted, and the file's time (in microseconds) that became 0."""
        self.unended += sum(len(unended) for unended in self._open.values())
        tables, self.misplaced = _without_misplaced(
            [_joined(parts) for parts in (self._device, self._host, self._calls)]
        )
        origin = float(min((table["start"].min() for table in tables if table), default=0.0))
        device, rows = _timed(tables[0], DeviceEvents, origin)
        host, _ = _timed(tables[1], HostRanges, origin)
        self._mark_steps(host)
        calls, _ = _timed(tables[2], Calls, origin)
        place = {int(row): index for index, row in enumerate(rows)} if self._messages else {}
        messages = {place[row]: message for row, message in self._messages if row in place}
        return device, host, calls, messages, origin


Numbers = npt.NDArray[Any]
RawTable = dict[str, Numbers]


def _joined(parts: Iterable[RawTable]) -> RawTable:
    """One table of those of all pieces."""
    listed = list(parts)
    return {key: np.concatenate([part[key] for part in listed]) for key in listed[0]} if listed else {}


def _without_misplaced(tables: Sequence[RawTable]) -> tuple[list[RawTable], int]:
    """The rows that are within a day of most others: one wrong time must not stretch the whole trace.

    Returns:
        The tables, each with its rows numbered as they were, and how many rows are left out.
    """
    starts = np.concatenate([table["start"] for table in tables if table] or [np.zeros(0)])
    middle = float(np.partition(starts, len(starts) // 2)[len(starts) // 2]) if len(starts) else 0.0
    found: list[RawTable] = []
    for table in tables:
        if table:
            table["row"] = np.arange(len(table["start"]))
            farthest = np.maximum(np.abs(table["start"] - middle), table["duration"])
            sound = farthest < thresholds.PLAUSIBLE_SPAN_US
            found.append({key: column[sound] for key, column in table.items()} if sound.any() else {})
        else:
            found.append({})
    return found, sum(map(_rows, tables)) - sum(map(_rows, found))


def _rows(table: RawTable) -> int:
    return len(table["start"]) if table else 0


def _timed(table: RawTable, kind: Any, origin: float) -> tuple[Any, Numbers]:
    """The table as an instance of its class, sorted by start, in nanoseconds since the origin."""
    types = {"kind": np.int8, "name": np.int32, "thread": np.int32, "device": np.int32}
    types |= {"stack": np.int32, "inputs": np.int32}
    fields = list(kind.__dataclass_fields__)
    if not table:
        return kind(**{name: np.zeros(0, dtype=types.get(name, np.int64)) for name in fields}), np.zeros(0, np.int64)
    start = np.rint((table.pop("start") - origin) * 1000).astype(np.int64)
    table["end"] = start + np.rint(table.pop("duration") * 1000).astype(np.int64)
    table["start"] = start
    # Of ranges that start together the longest comes first: it encloses the others.
    order = np.lexsort((-table["end"], start))
    rows = table["row"][order]
    return kind(**{name: table[name][order].astype(types.get(name, np.int64), copy=False) for name in fields}), rows
