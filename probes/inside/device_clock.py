"""Marks on the device's own track: when it comes to the borders of phases, in some of the ordinary steps.

Nothing waits for the device in such a step. Where there is no accelerator, or it is not used, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable

from perfdoctor.probes.inside.ring import COLLECTOR, DEVICE, POINT, STEP
from perfdoctor.probes.inside.timer import FAULTS, DeviceTimer, current_accelerator
from perfdoctor.recording.clock import NS_PER_S

# Events are recorded in as many steps a second: a step's 13 then cost a job less than a thousandth of its time, however
# short its steps are.
STEPS_PER_S = 20
# The value of a step's mark on the device's track where no timed step ended, but the first of several begins.
FIRST = 1

Mark = Callable[[int], None]
MakeMark = Callable[..., Mark]


class DeviceMarks:
    """The device's track of one session. Nothing here raises.

    Args:
        marker: gives the function that makes marks of a kind and value.
        say: told the clock's errors, and why nothing is known of the device.
    """

    def __init__(self, marker: MakeMark, say: Callable[..., None]) -> None:
        self._plain = marker
        self._say = say
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
        host = self._plain(kind, value)
        if kind & 0xFF == COLLECTOR:  # in any thread
            return host
        device = self._plain(kind + DEVICE, value)

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
                self._record(self._plain(POINT + DEVICE | STEP, FIRST))
        return self._timing

    def drain(self) -> None:
        """Waits for the device, takes what is left, and tells how its clock has stood to the one clock."""
        if self._timer is not None:
            try:
                self._timer.drain()
                self._say("device clock", self._timer.error_ns, self._timer.drift(), self._timer.skipped)
            except FAULTS as error:
                self._fail(error)

    def end(self) -> bool:
        """Records no more, and waits for nothing; returns whether it did record."""
        self._timing = False
        self._timer, used, self._used = None, self._used, False
        return used

    def _record(self, tell: Mark) -> None:
        try:
            if self._timer is not None and not self._timer.mark(tell):
                self._timing = False  # a step without all its marks would tell nonsense
        except FAULTS as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._timer, self._timing = None, False
        self._say("note", f"The device's times are not known: {type(error).__name__}: {error}"[:300], "")
