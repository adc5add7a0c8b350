"""One diagnosis from inside: warm-up, observed steps, follow-up runs, and the end, after which nothing is left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from threading import get_native_id
from time import monotonic_ns as now
from typing import Protocol

from perfdoctor.probes.inside.device_clock import DeviceMarks
from perfdoctor.probes.inside.isolated_phases import IsolatedPhases
from perfdoctor.probes.inside.options import Options
from perfdoctor.probes.inside.patches import Patches
from perfdoctor.probes.inside.profiler_run import ProfilerRun
from perfdoctor.probes.inside.ring import BEGIN, DETACHED, END, OBSERVED, SEEN, WATCHING, MakeMark, RingWriter
from perfdoctor.probes.inside.same_batch import SameBatch
from perfdoctor.probes.inside.setting_trials import SettingTrials
from perfdoctor.probes.inside.sidecar_process import Sidecar, start_sidecar
from perfdoctor.probes.inside.training_loop import TrainingLoop
from perfdoctor.recording.clock import NS_PER_S

# Where the user does not say how many steps: as long as `attach` watches, but some steps at least, and not for ever.
DEFAULT_S, DEFAULT_STEPS = 15, 10
# A sidecar that does not watch after this long will not.
PATIENCE_S = 60
# Marks are written at the end of a step, but not of every short one.
FLUSH_NS = NS_PER_S // 20


class FollowUp(Protocol):
    """What is done with some steps after the observed ones. Nothing in it raises."""

    def begin(self, time_ns: int, step_s: float, step: int) -> bool:
        """Begins, if it is wanted and can be done.

        Args:
            time_ns: when the last step ended.
            step_s: how long a step takes.
            step: the last step's number.

        Returns:
            Whether it has begun.
        """

    def step_ended(self, time_ns: int, step: int) -> bool:
        """Passes on to the next step; returns whether that is an ordinary one again."""

    def end(self) -> None:
        """Ends, whatever is left to do."""


class Session:
    """Watches the thread that makes it, until enough steps were seen. It then detaches.

    What detaching leaves behind in the process: nothing that runs, be it a patch, a hook, a callback or a thread.
    Torch's functions are the very objects that they were, and a step takes what it took before; only where somebody
    else has wrapped one of ours meanwhile, ours stays below theirs and passes its calls on. Until the process ends the
    session keeps its half MiB of marks, and what the sidecar has found.

    Args:
        options: what the user asked for.
        detached: called once it has detached.

    Attributes:
        loop: the training loop as it is seen.
        sidecar: the process that watches; None until it is started.
        pid: the process that is watched.

    Raises:
        OSError: there is no memory for the ring.
    """

    def __init__(self, options: Options, detached: Callable[[], None]) -> None:
        self.pid = os.getpid()
        self.sidecar: Sidecar | None = None
        self._options = options
        self._detached = detached
        self._active = True
        self._ring = RingWriter(get_native_id())
        self.loop = TrainingLoop(self._ring, self.step_ended)
        self._device = DeviceMarks(self._ring)
        same_batch = SameBatch(options.confirm, self._ring)
        self._isolated = IsolatedPhases(options.serialise, self._ring, self._rewire)
        self._profile = ProfilerRun(options.profile, self._ring)
        self._trials = SettingTrials(options.treat_minutes if options.treat else None, self.loop, self._ring)
        self._patches = Patches(self.loop, self._ring, same_batch)
        self._follow_ups: tuple[FollowUp, ...] = (same_batch, self._isolated, self._profile, self._trials)
        self._coming = iter(self._follow_ups)
        self._current: FollowUp | None = None
        self._step_s = 0.0
        self._start_ns = now()
        self._flush_ns = 0
        # When the observation ends, after the loop's ``due_step``.
        self._deadline_ns = 0
        # The step and the time from which on was observed; and that this is over.
        self._observed_from: int | None = None
        self._observed_ns = 0
        self._observed_all = False

    @property
    def observing(self) -> bool:
        """Steps are being observed."""
        return self._observed_from is not None and not self._observed_all

    def start(self) -> None:
        """Puts the patches in and starts the sidecar."""
        self._profile.watch_for_others()
        for name in self._patches.install():
            self._ring.note(f"This torch has no {name} to mark.")
        if threading.current_thread() is not threading.main_thread():
            self._ring.note("The training runs in a thread of its own; samples are of the main thread.")
        self.sidecar = start_sidecar(self._ring.fd, self._options, self._trials.far_end())
        if self.sidecar.problem:
            self._ring.note(self.sidecar.problem)
        self._ring.handed_over()

    def own_phase(self, name: str) -> int | None:
        """The number of one of the user's own phases; None if there are too many."""
        return self._ring.own_phase(name)

    def step_ended(self, time_ns: int) -> None:
        """Does what is due at the end of a step that ended at a time."""
        try:
            self._go_on(time_ns)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with perfdoctor must not end the training
            self._give_up(error)

    def finish(self) -> None:
        """Detaches for good."""
        if not self._active:
            return
        self._end_observation(now())
        self._end_follow_ups()
        self.abandon()
        self._ring.finish(DETACHED)

    def abandon(self) -> None:
        """Takes the patches out, and leaves everything else to the parent: for a process that was forked."""
        was_active, self._active = self._active, False
        self.loop.thread = 0
        self._patches.remove()
        self._device.end()
        self._isolated.forget()
        self._profile.forget()
        self._trials.end()
        if was_active:
            self._detached()

    def after_fork(self) -> None:
        """In a forked child: leaves it alone, but lets a sidecar that watches look at it as well."""
        if self._active and self.sidecar is not None:
            self.sidecar.allow()
        self.abandon()

    def clear(self) -> None:
        """Removes what the sidecar has not taken."""
        self._profile.clear()

    def _give_up(self, error: Exception) -> None:
        """Detaches at once; what was seen is still reported."""
        self.abandon()
        why = f"perfdoctor stopped looking because of a mistake of its own: {type(error).__name__}: {error}"
        # Here the ring itself may be what is broken.
        with suppress(Exception):
            self._ring.note(why, "Please report it, with the recording.")
        with suppress(Exception):
            self._end_follow_ups()
        with suppress(Exception):
            self._ring.finish(DETACHED)

    def _go_on(self, time_ns: int) -> None:
        if time_ns >= self._flush_ns:
            # A step with device events is always followed by this.
            self._flush_ns = 0 if self._device.step_ended(time_ns) else time_ns + FLUSH_NS
            self._ring.flush()
        if self._current is not None:
            if self._current.step_ended(time_ns, self.loop.steps):
                self._next_follow_up(time_ns)
        elif self._observed_from is None:
            self._warm_up(time_ns)
        elif self._ring.sidecar() != WATCHING:
            self.finish()
        elif self.loop.steps >= self.loop.due_step and time_ns >= self._deadline_ns:
            self._device.drain()
            self._end_observation(time_ns + 1)  # what has ended since then is none of them
            self._next_follow_up(time_ns)
        # The steps before and after the observed ones are taken one by one; of those only what is due now and then.
        self.loop.due_ns = self._flush_ns if self.observing else 0

    def _warm_up(self, time_ns: int) -> None:
        """Begins to observe with the end of a step once enough were left out and the sidecar watches."""
        steps, asked = self.loop.steps, self._options.steps
        if self._ring.sidecar() == WATCHING and steps >= self._options.warmup:
            self._patches.mind_compiler()
            if self._device.begin():
                self._rewire(self._device.marker)
            self.loop.marker(BEGIN | OBSERVED, steps)(time_ns + 1)  # that step is none of them
            self._observed_from, self._observed_ns = steps, time_ns
            self.loop.observed = True
            self.loop.due_step = steps + (DEFAULT_STEPS if asked is None else asked)
            self._deadline_ns = time_ns + DEFAULT_S * NS_PER_S if asked is None else 0
        elif time_ns - self._start_ns > PATIENCE_S * NS_PER_S or self._ring.sidecar() > WATCHING:
            self.finish()

    def _end_observation(self, time_ns: int) -> None:
        """Ends the observation at a time, if there was one; what ends after it counts no more."""
        if self._observed_from is None or self._observed_all:
            return
        self._observed_all = True
        steps = self.loop.steps
        self._step_s = (time_ns - self._observed_ns) / NS_PER_S / max(steps - self._observed_from, 1)
        self.loop.marker(END | OBSERVED, steps)(time_ns)
        if self._device.end():
            self._rewire(None)
        self._ring.finish(SEEN)

    def _next_follow_up(self, time_ns: int) -> None:
        """Begins with the next thing that is wanted and can be done; detaches where there is none."""
        for follow_up in self._coming:
            if follow_up.begin(time_ns, self._step_s, self.loop.steps):
                self._current = follow_up
                return
        self.finish()

    def _end_follow_ups(self) -> None:
        for one in self._follow_ups:
            one.end()

    def _rewire(self, marker: MakeMark | None) -> None:
        """Lets all patches mark in another way, None for the usual one: they keep what they were put in with."""
        self.loop.mark_with(marker or self._ring.marker)
        if self._active:
            self._patches.remove()
            self._patches.install()
