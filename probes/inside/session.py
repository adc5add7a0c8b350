"""One diagnosis from inside: which steps are seen, and when perfdoctor steps aside.

A step is one pass of the training loop. It ends where the user says so, or where a ``with`` around one step ends. In a
``with`` around the whole loop it ends where the next batch is asked for after some training work (a backward pass or an
optimizer's step), or, where batches come from no loader, where ``LoopSteps`` says.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from threading import get_ident, get_native_id
from time import monotonic_ns as now

from perfdoctor.probes.inside.device_clock import DeviceMarks, MakeMark
from perfdoctor.probes.inside.follow_up_runs import FollowUp
from perfdoctor.probes.inside.hooks import Hooks
from perfdoctor.probes.inside.loop_steps import LoopSteps
from perfdoctor.probes.inside.options import Wishes
from perfdoctor.probes.inside.ring import (
    ASIDE,
    BEGIN,
    END,
    KINDS,
    OBSERVED,
    OWN,
    POINT,
    SCOPE,
    SEEN,
    STEP,
    WATCHING,
    RingWriter,
)
from perfdoctor.probes.inside.sidecar_process import Companion, start_companion
from perfdoctor.recording.clock import NS_PER_S

# Where the user does not say how many steps: as long as `attach` watches, but some steps at least, and not for ever.
DEFAULT_S, DEFAULT_STEPS = 15, 10
# A sidecar that does not look after this long will not.
PATIENCE_S = 60
MAX_NAMES = 100
# Marks are written at the end of a step, but not of every short one.
FLUSH_NS = NS_PER_S // 20


class _Hot:
    """What a step touches, side by side: after a step of a model, each line of memory is found cold."""

    __slots__ = (
        "_flush_ns",
        "_left_loop",
        "_loop_steps",
        "_passed",
        "_told",
        "active",
        "compiler_tells",
        "depth",
        "ended",
        "entered",
        "late",
        "left_step",
        "limit",
        "loader_seen",
        "look_ns",
        "marker",
        "steps",
        "thread",
        "usual",
        "worked",
    )


class Session(_Hot):
    """Watches the thread that makes it, until enough steps were seen.

    Args:
        wishes: what the user asked for.

    Attributes:
        usual: each ``with`` is one step for all that is known: no step ended within the last one, and nothing but the
            ``with`` is to tell. ``Diagnose`` then does what its beginning and end take by itself.
        entered, ended, left_step: mark that such a ``with`` begins, its step ends, and it ends itself.
        steps: how many have ended.
        limit: with how many of them to look what is next.
        look_ns: from when on to look at the end of any step.

    Raises:
        OSError: there is no memory for the ring.
    """

    __slots__ = (
        "_deadline_ns",
        "_device",
        "_follow_up",
        "_hooks",
        "_names",
        "_observed_from",
        "_observed_ns",
        "_ring",
        "_start_ns",
        "_step_s",
        "_wishes",
        "companion",
        "pauses",
        "pid",
        "trial",
    )

    def __init__(self, wishes: Wishes) -> None:
        self.thread = get_ident()
        self.pid = os.getpid()
        self.active = True
        self.compiler_tells = False
        self.depth = 0
        self.usual = True
        self._wishes = wishes
        self._ring = RingWriter(get_native_id())
        self._mark_with(self._ring.marker)
        self.pauses = self._ring.flush_many
        self._hooks = Hooks(self)
        self._names: dict[str, int] = {}
        self.steps = 0
        self._observed_from: int | None = None
        self._observed_ns = 0
        self._step_s = 0.0
        self.limit = 0
        self._deadline_ns = 0
        self._start_ns = now()
        self.worked = False
        self._passed = 0
        self._told = False
        self.loader_seen = False
        self.late = 0
        self._loop_steps = LoopSteps()
        self.look_ns = self._flush_ns = 0
        self.companion: Companion | None = None
        self._device = DeviceMarks(self._ring.marker, self._ring.say)
        self._follow_up = FollowUp(wishes, self._ring, self._rewire, self._phase_name)
        self.trial = self._follow_up.trial

    def start(self) -> None:
        """Puts the hooks in and starts the sidecar."""
        self._follow_up.watch_for_others()
        for name in self._hooks.install():
            self._ring.say("note", f"This torch has no {name} to mark.", "")
        if threading.current_thread() is not threading.main_thread():
            self._ring.say("note", "The training runs in a thread of its own; samples are of the main thread.", "")
        self.companion = start_companion(self._ring.fd, self._wishes)
        if self.companion.problem:
            self._ring.say("note", self.companion.problem, "")
        self._ring.handed_over()

    def abandon(self) -> None:
        """Takes the hooks out, and leaves everything else to the parent: for a process that was forked."""
        self.active = False
        self.thread = 0
        self._hooks.remove()
        self._device.end()
        self._follow_up.forget()

    def finish(self) -> None:
        """Steps aside for good."""
        if not self.active:
            return
        self._see_no_more()
        self._follow_up.end()
        self.abandon()
        self._ring.finish(ASIDE)

    def clear(self) -> None:
        """Removes what the sidecar has not taken."""
        self._follow_up.clear()

    def enter(self, *, told: bool = False) -> None:
        """The user's ``with`` begins.

        Args:
            told: the user says where each step ends.
        """
        if get_ident() == self.thread:
            if self.depth:
                self.depth += 1
                return
            self.usual = not told
            if self._passed or self._loop_steps.first:
                known = self._told or self.loader_seen or self._observed_from is not None
                self._loop_steps.begin_anew(counts=not known)
                self._passed = 0
            self.depth, self._told = 1, told
            self.entered(now())

    def leave(self) -> None:
        """The user's ``with`` ends, and it is no usual one. In the thread that trains."""
        if self.depth > 1:
            self.depth -= 1
            return
        if self.depth == 0:
            return
        self.depth = 0
        if not self._passed and not self._told:
            self._step_ended(now())
            self.left_step(now())
            return
        if not self._passed:
            self._ring.say("note", "step() was not called between start() and stop(): no steps are known.", "")
        elif not self._told and self.worked:
            self._step_ended(now())
        self._left_loop(now())

    def step(self) -> None:
        """The user says that a step ends here; what else tells steps apart counts no more in this ``with``."""
        if get_ident() == self.thread and self.depth:
            self._told = True
            self.usual = False
            self._passed += 1
            self._step_ended(now())

    def phase_number(self, name: str) -> int | None:
        """The number of one of the user's own phases; None if there are too many."""
        number = self._names.get(name)
        if number is None and len(self._names) < MAX_NAMES:
            number = self._names[name] = OWN + len(self._names)
            self._ring.say("phase", number, name[:80])
        return number

    def fetches_after_work(self) -> None:
        """A batch is asked for."""
        if self.depth and not self._told:
            self.usual = False
            self._passed += 1
            self._step_ended(now())

    def optimizes(self, optimizer: int) -> None:
        """An optimizer's step begins, and no loader was seen."""
        self.usual = False
        if self.depth and not self._told and (ended := self._loop_steps.optimizer_begins(optimizer)):
            self._passed += 1
            # Torch goes through its hooks here: none may be taken out.
            self._step_ended(ended, late=True)
            self.worked = True

    def optimized(self) -> None:
        """An optimizer's step has ended, and no loader was seen."""
        if self.depth:
            self._loop_steps.optimizer_ended(now())

    def catch_up(self) -> None:
        """Does what could not be done where a step ended."""
        self.look(self.late)

    def _step_ended(self, time_ns: int, *, late: bool = False) -> None:
        self.ended(time_ns)
        self.worked = False
        self.steps += 1
        # What is looked at now and then costs a short step nothing.
        if time_ns >= self.look_ns or self.steps == self.limit:
            if late:
                self.late = time_ns
            else:
                self.look(time_ns)

    def look(self, time_ns: int) -> None:
        """Does what is due at the end of a step that ended at a time."""
        try:
            self._go_on(time_ns)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with perfdoctor must not end the training
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Steps aside at once; what was seen is still told."""
        self.abandon()
        why = f"perfdoctor stopped looking because of a mistake of its own: {type(error).__name__}: {error}"
        # Here the ring itself may be what is broken.
        with suppress(Exception):
            self._ring.say("note", why, "Please report it, with the recording.")
        with suppress(Exception):
            self._follow_up.end()
        with suppress(Exception):
            self._ring.finish(ASIDE)

    def _go_on(self, time_ns: int) -> None:
        self.late = 0
        if time_ns >= self._flush_ns:
            # The end of a step with device events is always looked at.
            self._flush_ns = 0 if self._device.step_ended(time_ns) else time_ns + FLUSH_NS
            self._ring.flush()
        if self._follow_up.begun:
            if not self._follow_up.step_ended(time_ns, self.steps):
                self.finish()
        elif self._observed_from is None:
            self._warm_up(time_ns)
        elif self._ring.sidecar() != WATCHING:
            self.finish()
        elif self.steps >= self.limit and time_ns >= self._deadline_ns:
            self._device.drain()
            self._see_no_more()
            if not self._follow_up.begin(time_ns, self._step_s, self.steps):
                self.finish()
        # The steps before and after the observed ones are looked at one by one.
        self.look_ns = 0 if self._observed_from is None or self._follow_up.begun else self._flush_ns

    def _see_no_more(self) -> None:
        """Ends the observation, if there was one; what is marked from here on counts no more."""
        if self._observed_from is not None and not self._follow_up.begun:
            observed = self.steps - self._observed_from
            self._step_s = (now() - self._observed_ns) / NS_PER_S / max(observed, 1)
            self.marker(END | OBSERVED, self.steps)(now())
            if self._device.end():
                self._rewire(None)
            self._ring.finish(SEEN)

    def _warm_up(self, time_ns: int) -> None:
        """Begins to observe with the end of a step once enough were left out and the sidecar looks."""
        if self._ring.sidecar() == WATCHING and self.steps >= self._wishes.warmup:
            self._hooks.mind_compiler()
            if self._device.begin():
                self._rewire(self._device.marker)
            self.marker(BEGIN | OBSERVED, self.steps)(time_ns + 1)  # that step is none of them
            self._observed_from, self._observed_ns = self.steps, time_ns
            asked = self._wishes.steps
            self.limit = self.steps + (DEFAULT_STEPS if asked is None else asked)
            self._deadline_ns = time_ns + DEFAULT_S * NS_PER_S if asked is None else 0
        elif time_ns - self._start_ns > PATIENCE_S * NS_PER_S or self._ring.sidecar() > WATCHING:
            self.finish()

    def _mark_with(self, marker: MakeMark) -> None:
        self.marker = marker
        self.entered = marker(BEGIN | SCOPE)
        # 1: there was more than one step in it, so that what comes until the next one belongs to none.
        self.left_step, self._left_loop = marker(END | SCOPE, 0), marker(END | SCOPE, 1)
        self.ended = marker(POINT | STEP)

    def _rewire(self, marker: MakeMark | None) -> None:
        """Lets all hooks mark in another way: they keep the functions that they were put in with."""
        self._mark_with(marker or self._ring.marker)
        if self.active:
            self._hooks.remove()
            self._hooks.install()

    def _phase_name(self, number: int) -> str:
        """What a mark is about, alike in all ranks: each numbers its own phases in the order of their coming."""
        return KINDS[number] if number < len(KINDS) else next(name for name, n in self._names.items() if n == number)
