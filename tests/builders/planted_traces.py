"""Plants bottlenecks into recorded traces of sound jobs, so that the truth about each is known.

The host is held up at chosen moments, or a device's work takes longer, and what follows is replayed: a call comes later
by what was inserted before it, and work of a device begins once it was launched, its stream is free, and what it waited
for on other streams has ended. So the device idles by as much more as its queue does not cover.
"""

from __future__ import annotations

import bisect
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Event = dict[str, Any]
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
_CALLS = ("cuda_runtime", "cuda_driver")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# Until 2021 categories had other names.
_TODAY = {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime", "Operator": "cpu_op",
}  # fmt: skip
# Microseconds from a launch to its kernel on an empty device.
_LATENCY = 8.0


class Planted:
    """A trace that is changed; times are microseconds.

    Attributes:
        events: those that last.
    """

    def __init__(self, path: Path) -> None:
        self._document: Any = json.loads(gzip.decompress(path.read_bytes()))
        kept = [event for event in self._document["traceEvents"] if event.get("ph") == "X" and event.get("cat")]
        self.events: list[Event] = [event for event in kept if not event["cat"].startswith("gpu_user")]
        self._document["traceEvents"] = self.events
        for event in self.events:
            event["cat"] = _TODAY.get(event["cat"], event["cat"])
            event["ts"], event["dur"] = float(event["ts"]), float(event.get("dur", 0.0))
        self._last = 10**9

    def steps(self) -> list[Event]:
        """The profiler's steps, on the host."""
        return sorted((one for one in self.events if one["name"].startswith("ProfilerStep")), key=_start)

    def on_device(self) -> list[Event]:
        """What devices did, in order."""
        return sorted((event for event in self.events if event["cat"] in _DEVICE), key=_start)

    def busy(self, start: float, end: float) -> float:
        """How long any work ran on a device in a span."""
        total, reached = 0.0, start
        for event in self.on_device():
            begun, done = max(event["ts"], reached), min(event["ts"] + event["dur"], end)
            total += max(done - begun, 0.0)
            reached = max(reached, done)
        return total

    def first_collectives(self) -> list[Event]:
        """In each step the first that was launched in it, of NCCL's."""
        calls, found = self._calls(lambda _: True), []
        collectives = [event for event in self.on_device() if "nccl" in event["name"]]
        for step in self.steps():
            called = [calls[_correlation(one)]["ts"] if _correlation(one) in calls else 0.0 for one in collectives]
            inside = (one for one, time in zip(collectives, called, strict=True) if step["ts"] <= time < _end(step))
            found.append(next(inside))
        return found

    def drained(self, moment: float) -> float:
        """When the device has done all that was launched before a moment."""
        launched = self._calls(lambda call: float(call["ts"]) < moment)
        return max([moment, *(_end(event) for event in self.on_device() if _correlation(event) in launched)])

    def hold_up(self, moment: float, length: float) -> None:
        """Keeps the host from doing anything for a time; ranges that contain the moment last longer.

        Args:
            moment: when.
            length: below 0 what follows comes earlier instead, and those ranges are shorter.
        """
        old = {id(event): (event["ts"], _end(event)) for event in self.events}
        for event in self.events:
            if event["cat"] not in _DEVICE:
                start, end = old[id(event)]
                event["ts"] = start + (length if start >= moment else 0.0)
                event["dur"] = end + (length if end > moment else 0.0) - event["ts"]
        self._replay(old, {})

    def lengthen(self, longer: Mapping[int, float]) -> None:
        """Makes work of the device take longer: the event's ``id`` to microseconds."""
        self._replay({id(event): (event["ts"], _end(event)) for event in self.events}, longer)

    def _replay(self, old: Mapping[int, tuple[float, float]], longer: Mapping[int, float]) -> None:
        calls = self._calls(lambda _: True)
        ended: list[tuple[float, float, float]] = []  # of all streams: when it did, when it does now, and its call
        last: dict[Any, tuple[float, float]] = {}
        for event in self.on_device():
            start, end = old[id(event)]
            called = start
            bounds: list[tuple[float, float] | None] = []
            if (call := calls.get(_correlation(event))) is not None:
                called = old[id(call)][0]
                lag = min(start - called, _LATENCY)
                bounds.append((called + lag, call["ts"] + lag))
            if event["tid"] in last:
                bounds.append(last[event["tid"]])
            # A stream can wait only for what was launched before; the last of this to end is taken for it.
            earlier = reversed(ended[: bisect.bisect_right(ended, (start, float("inf")))])
            bounds += [next(((before, now) for before, now, launched in earlier if launched <= called), None)]
            known = [bound for bound in bounds if bound is not None]
            reason = max((before for before, _ in known), default=start)
            event["ts"] = max((now for _, now in known), default=start) + max(start - reason, 0.0)
            event["dur"] = end - start + longer.get(id(event), 0.0)
            last[event["tid"]] = (end, _end(event))
            bisect.insort(ended, (*last[event["tid"]], called))

    def _calls(self, wanted: Callable[[Event], bool]) -> dict[Any, Event]:
        return {_correlation(event): event for event in self.events if event["cat"] in _CALLS and wanted(event)}

    def add(self, category: str, name: str, start: float, end: float, like: Event, **arguments: Any) -> Event:
        """A range on the thread, or the stream, of another one."""
        where = {"pid": like["pid"], "tid": like["tid"]}
        event = {"ph": "X", "cat": category, "name": name, "ts": start, "dur": end - start, **where, "args": arguments}
        self.events.append(event)
        return event

    def call(self, name: str, start: float, end: float, like: Event) -> int:
        """A call of the runtime; returns its correlation."""
        self._last += 1
        self.add("cuda_runtime", name, start, end, like, correlation=self._last)
        return self._last

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(self._document))
        return path


def _start(event: Event) -> float:
    return float(event["ts"])


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def _correlation(event: Event) -> Any:
    return event.get("args", {}).get("correlation")
