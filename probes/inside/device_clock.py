"""The device's clock: when an accelerator comes to what the host has asked of it, on the one clock.

A host only enqueues work, and runs ahead of the device. When the device comes to an
event that was recorded in the current stream can be asked later: no step has to wait for it.

    timer = DeviceTimer(accelerator)            # accelerator = current_accelerator(), where it is not None
    timer.mark(times.append)                    # in the stream, now
    ...
    timer.resolve()                             # reports what the device has come to meanwhile, in nanoseconds
    timer.drain()                               # waits for all the device's work: for a few chosen steps only

``DeviceMarks`` uses it at the borders of phases, in some of the ordinary steps. All is written against ``torch.Event``
and ``torch.accelerator``, so that CUDA, ROCm and XPU work alike; where there is no accelerator nothing is changed.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from perfdoctor.probes.inside.ring import COLLECTOR, DEVICE, POINT, STEP, Mark, RingWriter
from perfdoctor.recording.clock import NS_PER_S, now_ns

# Marks that may wait for the device; those beyond are left out. A step makes about 13.
POOL = 512
# An event's distance to the anchor is a float of milliseconds: after a second it is good to 0.1 µs.
ANCHOR_NS = NS_PER_S
_NS_PER_MS = 1_000_000
# Events are recorded in as many steps a second: a step's 13 then cost a job less than a thousandth of its time, however
# short its steps are.
STEPS_PER_S = 20
# The value of a step's mark on the device's track where no timed step ended, but the first of several begins.
FIRST = 1
# What a broken, lost or unusual device may raise; torch's own errors are runtime errors.
FAULTS = (RuntimeError, ValueError, TypeError, AttributeError)


class DeviceEvent(Protocol):
    """As ``torch.Event``."""

    def record(self) -> None:
        """Puts it into the current stream."""

    def query(self) -> bool:
        """Whether the device has come to it."""

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds from this one to another one."""


class Accelerator(Protocol):
    """The little that the timer needs of a device."""

    def event(self) -> DeviceEvent:
        """A new event with a time."""

    def drain(self) -> None:
        """Waits until the device has done all that it was asked."""

    def usable(self) -> bool:
        """Whether events may be recorded and asked now: it is the current device, and no graph is being captured."""


class TorchAccelerator:
    """The accelerator of torch that the calling thread uses.

    Args:
        module: torch's module of that kind of device, such as ``torch.cuda``.
    """

    def __init__(self, module: Any) -> None:
        import torch

        self._torch = torch
        self._index = torch.accelerator.current_device_index()
        self._capturing = getattr(module, "is_current_stream_capturing", lambda: False)

    def event(self) -> DeviceEvent:
        """A new event with a time."""
        return self._torch.Event(enable_timing=True)

    def drain(self) -> None:
        """Waits until the device has done all that it was asked."""
        self._torch.accelerator.synchronize(self._index)

    def usable(self) -> bool:
        """Whether events may be recorded and asked now."""
        return not self._capturing() and self._torch.accelerator.current_device_index() == self._index


def current_accelerator() -> Accelerator | None:
    """The accelerator that this process uses already; None if it uses none.

    A device that nobody has used yet is not woken: that would take memory and time.
    """
    import torch

    try:
        # To ask whether one is available would already begin to use it.
        kind = torch.accelerator.current_accelerator()
        module = None if kind is None else torch.get_device_module(kind)
        return TorchAccelerator(module) if module is not None and module.is_initialized() else None
    except FAULTS:  # this torch has no such thing
        return None


class DeviceTimer:
    """Finds when the device comes to marks in its stream. Only for the thread that trains.

    Making one waits once for the device, to know how its clock stands to the one clock.

    Args:
        accelerator: the device.
        pool: how many events to use at most; each is used again once it is resolved.

    Attributes:
        error_ns: how far the device's times may be off the one clock's, by how it was set; clocks drift apart besides.
        skipped: marks that were left out, since all events were waiting for the device.

    Raises:
        RuntimeError: the device cannot be used now, or has no events with a time.
    """

    def __init__(self, accelerator: Accelerator, pool: int = POOL) -> None:
        if not accelerator.usable():
            raise RuntimeError("the device is capturing a graph")
        self._accelerator = accelerator
        self._free = [accelerator.event() for _ in range(pool)]
        self._waiting: deque[tuple[DeviceEvent, Mark]] = deque()
        self._anchor = accelerator.event()
        self._spare = accelerator.event()
        self._anchor_ns, self.error_ns = self._set(self._anchor)
        self._latest_ns = self._anchor_ns
        self.skipped = 0

    def mark(self, reached: Mark) -> bool:
        """Puts an event into the current stream, and returns at once.

        Args:
            reached: called by ``resolve`` or ``drain`` with the time at which the device came to it.

        Returns:
            Whether it did; False where all events wait for the device, or it cannot be used now.
        """
        if not self._free or not self._accelerator.usable():
            self.skipped += 1
            return False
        event = self._free.pop()
        event.record()
        self._waiting.append((event, reached))
        return True

    def resolve(self) -> None:
        """Reports the times of what the device has come to since, in the order of marks; waits for nothing."""
        if not self._waiting or not self._accelerator.usable():
            return
        while self._waiting and self._waiting[0][0].query():
            event, reached = self._waiting.popleft()
            time_ns = self._time(event)
            # Between two marks there may be nothing to do, and events of different streams may come in another order;
            # that of the marks is kept.
            self._latest_ns = max(self._latest_ns + 1, time_ns)
            reached(self._latest_ns)
            if time_ns - self._anchor_ns > ANCHOR_NS:
                self._anchor, event, self._anchor_ns = event, self._anchor, time_ns
            self._free.append(event)

    def drain(self) -> None:
        """Waits until the device has done all that it was asked, and reports the times of all marks."""
        if self._accelerator.usable():
            self._accelerator.drain()
            self.resolve()

    def drift(self) -> int | None:
        """Nanoseconds by which the device's clock has run ahead of the one clock since the timer was made.

        Waits for the device. None if it cannot be used now.
        """
        if not self._accelerator.usable():
            return None
        time_ns, _ = self._set(self._spare)
        return self._time(self._spare) - time_ns

    def _time(self, event: DeviceEvent) -> int:
        return self._anchor_ns + round(self._anchor.elapsed_time(event) * _NS_PER_MS)

    def _set(self, event: DeviceEvent) -> tuple[int, int]:
        """Records an event on a device that has nothing to do.

        Returns:
            The time of the event by the host's clock, and how far that may be off.
        """
        before = after = 0
        for _ in range(2):  # the first use of an event takes longer
            self._accelerator.drain()
            before = now_ns()
            event.record()
            self._accelerator.drain()
            after = now_ns()
        return (before + after) // 2, (after - before + 1) // 2


class DeviceMarks:
    """The device's track of one session. Nothing here raises.

    Args:
        ring: takes the marks, the clock's errors, and why nothing is known of the device.
    """

    def __init__(self, ring: RingWriter) -> None:
        self._ring = ring
        self._timer: DeviceTimer | None = None
        self._timing = False
        self._used = False
        self._began_ns = 0

    def begin(self) -> bool:
        """Sets the device's clock, which waits for the device; returns whether there is one."""
        accelerator = current_accelerator()
        if accelerator is not None:
            try:
                self._timer = DeviceTimer(accelerator)
            except FAULTS as error:
                self._fail(error)
        self._used = self._timer is not None
        return self._used

    def marker(self, kind: int, value: int = 0) -> Mark:
        """As the ring's, for marks that the device makes as well."""
        host = self._ring.marker(kind, value)
        if kind & 0xFF == COLLECTOR:  # in any thread
            return host
        device = self._ring.marker(kind + DEVICE, value)

        def mark(time_ns: int) -> None:
            host(time_ns)
            if self._timing:
                self._record(device)

        return mark

    def step_ended(self, time_ns: int) -> bool:
        """Takes what the device has come to, and decides whether the next step is timed."""
        timer = self._timer
        if timer is None:
            return False
        try:
            timer.resolve()
        except FAULTS as error:
            self._fail(error)
            return False
        before, self._timing = self._timing, time_ns - self._began_ns >= NS_PER_S // STEPS_PER_S
        if self._timing:
            self._began_ns = time_ns
            if not before:
                self._record(self._ring.marker(POINT + DEVICE | STEP, FIRST))
        return self._timing

    def drain(self) -> None:
        """Waits for the device, takes what is left, and reports how its clock has stood to the one clock."""
        if self._timer is not None:
            try:
                self._timer.drain()
                self._ring.say("device clock", self._timer.error_ns, self._timer.drift(), self._timer.skipped)
            except FAULTS as error:
                self._fail(error)

    def end(self) -> bool:
        """Records no more, and waits for nothing; returns whether it did record."""
        self._timing = False
        self._timer, used, self._used = None, self._used, False
        return used

    def _record(self, mark: Mark) -> None:
        try:
            if self._timer is not None and not self._timer.mark(mark):
                self._timing = False  # a step without all its marks would be nonsense
        except FAULTS as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._timer, self._timing = None, False
        self._ring.note(f"The device's times are not known: {type(error).__name__}: {error}"[:300])
