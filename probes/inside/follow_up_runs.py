"""What is done with the steps after the observed ones: a trial, serialised steps and a profile, one after the other."""

from __future__ import annotations

from collections.abc import Callable

from perfdoctor.probes.inside.device_clock import MakeMark
from perfdoctor.probes.inside.isolated_phases import Serial
from perfdoctor.probes.inside.options import Wishes
from perfdoctor.probes.inside.profiler_run import Burst
from perfdoctor.probes.inside.ring import RingWriter
from perfdoctor.probes.inside.same_batch import Trial


class FollowUp:
    """All of it, as far as it is wanted and can be done. Nothing here raises.

    Args:
        wishes: what the user asked for.
        ring: takes marks and notes.
        rewire: lets the hooks make their marks with another function; None for the usual one.
        phase_name: what the number of a phase stands for.

    Attributes:
        trial: stands between a loader and the training.
        begun: the observed steps are over.
    """

    def __init__(
        self,
        wishes: Wishes,
        ring: RingWriter,
        rewire: Callable[[MakeMark | None], None],
        phase_name: Callable[[int], str],
    ) -> None:
        self._ring = ring
        self.trial = Trial(wishes.confirm, ring.say)
        self._serial = Serial(wishes.serialise, ring.marker, rewire, phase_name, self._note)
        self._burst = Burst(wishes.profile, self._note)
        self._coming: list[Trial | Serial | Burst] = [self.trial, self._serial, self._burst]
        self._doing: Trial | Serial | Burst | None = None
        self._step_s = 0.0
        self.begun = False

    def watch_for_others(self) -> None:
        """Notices from here on whether the script profiles itself."""
        self._burst.watch_for_others()

    def begin(self, time_ns: int, step_s: float, step: int) -> bool:
        """Begins with the first thing.

        Args:
            time_ns: when the last observed step ended.
            step_s: how long a step takes.
            step: its number.

        Returns:
            Whether there is any.
        """
        self.begun, self._step_s = True, step_s
        return self._go_on(time_ns, step)

    def step_ended(self, time_ns: int, step: int) -> bool:
        """Passes on to the next step; returns whether something is left to do with it."""
        if self._doing is not None and not self._doing.step_ended(time_ns, step):
            return True
        return self._go_on(time_ns, step)

    def end(self) -> None:
        """Ends what is being done, and tells where the profile is, if there is one."""
        self._coming.clear()
        self._serial.end()
        self.trial.end()
        self._burst.end()
        if self._burst.trace is not None:
            self._ring.say("trace", self._burst.trace)

    def forget(self) -> None:
        """Leaves everything to the parent: for a process that was forked."""
        self._serial.forget()
        self._burst.forget()

    def clear(self) -> None:
        """Removes what the sidecar has not taken."""
        self._burst.clear()

    def _go_on(self, time_ns: int, step: int) -> bool:
        while self._coming:
            self._doing = self._coming.pop(0)
            if self._doing.begin(time_ns, self._step_s, step):
                return True
        return False

    def _note(self, why: str) -> None:
        self._ring.say("note", why, "")
