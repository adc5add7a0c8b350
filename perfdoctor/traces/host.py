"""What each host thread does at each moment, as far as a trace shows it: operators, calls, the loader, collectives."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cached_property

import numpy as np

from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.traces.first_calls import Stretches, find_first_calls
from perfdoctor.traces.intervals import Intervals, Nesting, nest
from perfdoctor.traces.model import Bools, HostKind, Int64s, Trace, is_among


class HostActivity(IntEnum):
    """What a thread is in, in the order in which time is given where ranges nest."""

    LOADING = 0
    SAVING = 1
    COMPILING = 2
    ALLOCATING = 3
    SYNCHRONIZING = 4
    COPYING_IN = 5
    COLLECTIVE = 6
    SPREADING = 7
    SETTING_UP = 8
    DISPATCHING = 9
    OWN_CODE = 10


class Host:
    """The threads of one trace.

    Attributes:
        trace: where they were seen.
        main: the thread that runs the training loop: the one with the profiler's steps, else that in which optimizers
            step, else with most ranges.
    """

    def __init__(self, trace: Trace, steps: tuple[tuple[int, int], ...] = ()) -> None:
        self.trace = trace
        self._one_step = len(steps) == 1
        self.main = self._find_main(steps)
        self._activity: dict[int | None, dict[HostActivity, Intervals]] = {}
        self._following: dict[int | None, dict[HostActivity, Intervals]] = {}

    def activity(self, thread: int | None) -> dict[HostActivity, Intervals]:
        """The times of a thread by what it does, disjoint; of all threads together for None."""
        if thread not in self._activity:
            self._activity[thread] = self._sort(thread)
        return self._activity[thread]

    def spent(self, thread: int | None, start: Int64s, end: Int64s) -> Int64s:
        """For each of many spans, how much of it went into what.

        While a thread is in nothing that the trace shows, it waits for another: for the main thread, or else for any.

        Returns:
            Nanoseconds, one row per span, one column per ``HostActivity``.
        """
        doing = self._followed(thread)
        return np.stack([doing[one].within(start, end) for one in HostActivity], axis=1)

    def _followed(self, thread: int | None) -> dict[HostActivity, Intervals]:
        if thread not in self._following:
            found = {one: Intervals.none() for one in HostActivity}
            taken = Intervals.none()
            for other in dict.fromkeys((thread, self.main, None)):
                for one, times in self.activity(other).items():
                    found[one] = found[one] | (times - taken)
                taken = Intervals.union(
                    np.concatenate([times.start for times in found.values()]),
                    np.concatenate([times.end for times in found.values()]),
                )
            self._following[thread] = found
        return self._following[thread]

    @cached_property
    def on_main(self) -> Bools:
        """Which ranges are the main thread's."""
        return self._on(self.main, self.trace.host.thread)

    @cached_property
    def operators(self) -> Nesting:
        """How the operators nest; those of fetching a batch are left out."""
        host = self.trace.host
        return nest(host, (host.kind == HostKind.OPERATOR) & ~self.fetching)

    @cached_property
    def sees_operators(self) -> bool:
        """Whether all operators were recorded: so a thread that is in none is in code outside of PyTorch.

        Some jobs record a sample of their events only. The numbers that join calls with what they launch count all
        calls of the process, also those that no profiler writes down; of a sample next to none is there.
        """
        numbers = self.trace.calls.correlation[self.trace.calls.correlation > 0]
        if not len(numbers) or not (self.trace.host.kind == HostKind.OPERATOR).any():
            return False
        counted = int(numbers.max()) - int(numbers.min()) + 1
        return len(numbers) >= thresholds.RECORDED_CALLS * counted

    @cached_property
    def recorded(self) -> Intervals:
        """From the first thing that was recorded of the host to the last."""
        ranges, calls = self.trace.host, self.trace.calls
        tables = [table for table in (ranges, calls) if len(table)]
        if not tables:
            return Intervals.none()
        return Intervals.one(min(int(one.start.min()) for one in tables), max(int(one.end.max()) for one in tables))

    @cached_property
    def draining(self) -> Bools:
        """Which calls wait until the device has done what it was given."""
        return self._calls(profiler.SYNCHRONIZING) | (self._calls(profiler.COPY_CALL) & self._copies(profiler.TO_HOST))

    @cached_property
    def allocating(self) -> Bools:
        """Which calls allocate or free memory of the device."""
        return self._calls(profiler.ALLOCATING)

    @cached_property
    def freeing(self) -> Bools:
        """Which calls free memory, and wait until the device has done what it was given."""
        return self._calls(profiler.FREEING)

    @cached_property
    def fetching(self) -> Bools:
        """Which ranges are fetches of a batch."""
        return self._named(profiler.LOADING)

    @cached_property
    def saving(self) -> Bools:
        """Which ranges save a checkpoint."""
        return self._named(profiler.SAVING)

    @cached_property
    def compiling(self) -> Bools:
        """Which ranges compile the model."""
        return self._named(profiler.COMPILING)

    @cached_property
    def awaiting(self) -> Bools:
        """Which ranges are built-in functions in which a thread waits for other threads."""
        return self._named(profiler.AWAITING)

    @cached_property
    def copying_in(self) -> Bools:
        """Which calls launch a copy to the device."""
        return self._calls(profiler.COPY_CALL) & self._copies(profiler.TO_DEVICE)

    @cached_property
    def from_pinned(self) -> Bools:
        """Which calls launch a copy to the device from pinned memory."""
        return self.copying_in & self._copies(profiler.FROM_PINNED)

    @cached_property
    def blocked(self) -> Bools:
        """Which calls return only after the copy to the device that they launch has begun.

        So does a copy from pageable memory that is too large for the driver to set aside: it waits until the device
        has done what came before it.
        """
        calls, device = self.trace.calls, self.trace.device
        copies = np.flatnonzero(self._launched_copies(profiler.TO_DEVICE))
        found: Bools = self.copying_in.copy()
        if found.any():
            order = copies[np.argsort(device.correlation[copies], kind="stable")]
            copy = order[np.searchsorted(device.correlation[order], calls.correlation[found])]
            found[found] = calls.end[found] > device.start[copy]
        return found

    @cached_property
    def collectives(self) -> Bools:
        """Which ranges are collectives on the host."""
        return self._named(profiler.HOST_COLLECTIVE)

    @cached_property
    def has_data_parallel(self) -> bool:
        """Whether one process spreads the model over several GPUs with ``nn.DataParallel``."""
        return bool(self._named(profiler.DATA_PARALLEL).any())

    @cached_property
    def spreading(self) -> Bools:
        """Which ranges are ``nn.DataParallel``'s: scatter, replicate, gather, and the backward passes of these."""
        if not self.has_data_parallel:
            return np.zeros(len(self.trace.host), dtype=np.bool_)
        return self._named(profiler.SPREADING)

    def _sort(self, thread: int | None) -> dict[HostActivity, Intervals]:
        ranges, calls = self.trace.host, self.trace.calls
        on_host = self._on(thread, ranges.thread)
        on_calls = self._on(thread, calls.thread)
        python = ranges.kind == HostKind.PYTHON
        launches = Intervals.union(calls.start[on_calls], calls.end[on_calls])
        operators = self._ranges(on_host & (ranges.kind == HostKind.OPERATOR)) | launches
        found = {
            HostActivity.LOADING: self._ranges(on_host & self.fetching),
            HostActivity.SAVING: self._ranges(on_host & self.saving),
            HostActivity.COMPILING: self._ranges(on_host & self.compiling),
            HostActivity.ALLOCATING: self._during(on_calls & self.allocating),
            HostActivity.SYNCHRONIZING: self._during(on_calls & self.draining),
            HostActivity.COPYING_IN: self._during(on_calls & self.copying_in),
            HostActivity.COLLECTIVE: self._ranges(on_host & self.collectives),
            HostActivity.SPREADING: self._ranges(on_host & self.spreading),
            HostActivity.SETTING_UP: self._during(on_calls & (calls.end - calls.start > thresholds.SET_UP_CALL_NS)),
            HostActivity.DISPATCHING: Intervals.union(
                operators.start, operators.end, joining=int(thresholds.DISPATCH_PAUSE_NS)
            ),
            HostActivity.OWN_CODE: self._ranges(on_host & python),
        }
        found[HostActivity.SETTING_UP] |= self._first_calls.on(thread) | self._capturing(thread)
        if thread is not None:  # what others do meanwhile explains more than the frame that waits for them
            found[HostActivity.OWN_CODE] -= self._ranges(on_host & python & self.awaiting)
        taken = Intervals.none()
        for one in HostActivity:
            found[one], taken = found[one] - taken, taken | found[one]
        return found

    def _capturing(self, thread: int | None) -> Intervals:
        """The times in which a thread records what it launches as a graph, and makes that ready to run."""
        calls, on_calls = self.trace.calls, self._on(thread, self.trace.calls.thread)
        begins, ends = on_calls & self._calls(profiler.CAPTURE_BEGINS), self._calls(profiler.CAPTURE_ENDS)
        found = self._during(on_calls & self._calls(profiler.INSTANTIATING))
        for one in np.unique(calls.thread[begins]).tolist():
            here = calls.thread == one
            begun, ended = calls.start[begins & here], np.sort(calls.end[ends & here])
            places = np.searchsorted(ended, begun)
            whole = places < len(ended)
            found |= Intervals.union(begun[whole], ended[places[whole]])
        return found

    @cached_property
    def _first_calls(self) -> Stretches:
        if not self.sees_operators:
            return Stretches.none()
        return find_first_calls(self.trace, self.operators, one_step=self._one_step)

    def _ranges(self, rows: Bools) -> Intervals:
        return Intervals.union(self.trace.host.start[rows], self.trace.host.end[rows])

    def _during(self, rows: Bools) -> Intervals:
        return Intervals.union(self.trace.calls.start[rows], self.trace.calls.end[rows])

    def _on(self, thread: int | None, column: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Bools:
        if thread is None:
            return np.ones(len(column), dtype=np.bool_)
        return is_among(column, [thread, *(self._nameless if thread == self.main else ())])

    @cached_property
    def _nameless(self) -> list[int]:
        """Threads 0 of process 0: some versions write the Python frames of a single-threaded program there.

        Where the main thread has frames of its own, these are of a thread that nobody knows, a debugger's for instance.
        """
        ranges = self.trace.host
        if ((ranges.thread == self.main) & (ranges.kind == HostKind.PYTHON)).any():
            return []
        return [row for row, thread in enumerate(self.trace.threads) if thread == ("0", "0")]

    def _named(self, pattern: re.Pattern[str]) -> Bools:
        return self.trace.matching(pattern, self.trace.host.name)

    def _calls(self, pattern: re.Pattern[str]) -> Bools:
        return self.trace.matching(pattern, self.trace.calls.name)

    def _copies(self, pattern: re.Pattern[str]) -> Bools:
        """Which calls launched a copy in a direction."""
        return is_among(self.trace.calls.correlation, self.trace.device.correlation[self._launched_copies(pattern)])

    def _launched_copies(self, pattern: re.Pattern[str]) -> Bools:
        """Which events of devices are copies in a direction that say what launched them."""
        device = self.trace.device
        return self.trace.matching(pattern, device.name) & (device.correlation > 0)

    def _find_main(self, steps: tuple[tuple[int, int], ...]) -> int | None:
        ranges, calls = self.trace.host, self.trace.calls
        if steps:
            first = (ranges.start == steps[0][0]) & (ranges.end == steps[0][1])
            if first.any():
                return int(ranges.thread[first][0])
        updating = self._named(profiler.OPTIMIZER_STEP)
        if updating.any():
            return int(np.bincount(ranges.thread[updating]).argmax())
        column = ranges.thread[ranges.kind != HostKind.PYTHON] if len(ranges) else calls.thread
        return int(np.bincount(column).argmax()) if len(column) else None
