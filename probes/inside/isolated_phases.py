"""Isolated phases: a few steps, after the observed ones, in which one phase must end before the next one begins.

At each border the device is drained, and all ranks meet at a barrier, so that a phase takes what it takes by itself:
nothing hides behind anything else. The ranks agree on a step first, without waiting for each other, and then rehearse
one: a part that only some of them have gets no barrier. If they do not come together, each goes on alone, and the
recording says why. In recordings and reports these are the *serialised* steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic_ns as now

from perfdoctor.probes.inside.device_clock import FAULTS, Accelerator, current_accelerator
from perfdoctor.probes.inside.ring import (
    BEGIN,
    COLLECTOR,
    EDGES,
    END,
    RANK_WAIT,
    SCOPE,
    SERIALISED,
    MakeMark,
    Mark,
    RingWriter,
)
from perfdoctor.probes.inside.store_barrier import StoreBarrier, store_barrier
from perfdoctor.recording.clock import NS_PER_S

STEPS = 4  # their phases run one after the other, so there are no more than a median needs
# A rank waits for the others as long as so many steps take: a straggler may take much longer than the rest.
PATIENT_STEPS, LEAST_S, MOST_S = 5, 2.0, 20.0
# Ranks end their observed steps within this time of each other; they go on training meanwhile.
AGREE_S = 5.0
# From the step in which the last rank is ready: one rank may be some steps ahead, and none asks oftener than this.
LEAD_STEPS, LEAD_S, ASK_NS = 4, 0.1, NS_PER_S // 200
_IDLE, _AGREEING, _REHEARSING, _ISOLATING = range(4)


class IsolatedPhases:
    """The steps with isolated phases of one session. Nothing here raises.

    Args:
        wanted: whether to make any.
        ring: takes their marks, or why there are none.
        rewire: lets the patches make their marks with another function than the ring's; None for the ring's.
    """

    def __init__(self, wanted: bool, ring: RingWriter, rewire: Callable[[MakeMark | None], None]) -> None:
        self._wanted = wanted
        self._ring = ring
        self._rewire = rewire
        self._state = _IDLE
        self._accelerator: Accelerator | None = None
        self._barrier: StoreBarrier | None = None
        self._patience_s = LEAST_S
        self._begun_ns = self._asked_ns = 0
        self._start_at = 0
        self._made = 0
        self._seen: Counter[str] = Counter()
        self._apart: set[str] = set()

    def begin(self, time_ns: int, step_s: float, step: int) -> bool:
        """Agrees with the other ranks on a step; returns whether there is anything to isolate."""
        if not self._wanted:
            return False
        self._accelerator, self._barrier = current_accelerator(), store_barrier()
        self._patience_s = min(MOST_S, max(LEAST_S, PATIENT_STEPS * step_s))
        self._begun_ns = time_ns
        if self._barrier is not None:
            self._state = _AGREEING
            self._barrier.ready(step + max(LEAD_STEPS, round(LEAD_S / max(step_s, 1e-6))))
        elif self._accelerator is not None:
            self._rehearse()
        return self._state != _IDLE

    def step_ended(self, time_ns: int, step: int) -> bool:
        """Goes on to the next step; returns whether that is an ordinary one again."""
        if self._state == _AGREEING:
            self._agree(time_ns, step)
        elif self._state == _REHEARSING:
            self._start()
        elif self._state == _ISOLATING:
            self._made += 1
            self._seen.clear()
            if self._made == STEPS:
                self.end()
        return self._state == _IDLE

    def end(self, why: str = "The training ended before all steps were made.") -> None:
        """Makes steps ordinary again, and does not let the other ranks wait.

        Args:
            why: what to say if steps are missing, and the other ranks are not the reason.
        """
        before, self._state = self._state, _IDLE
        if before == _ISOLATING:
            self._ring.marker(END | SERIALISED, self._made)(now())
        if before > _AGREEING:
            self._rewire(None)
        if before != _IDLE and self._made < STEPS:
            if self._barrier is not None:
                self._barrier.leave(why)
                why = self._barrier.problem
            made = f"Only {self._made} of {STEPS} steps were" if self._made else "No step was"
            self._ring.note(f"{made} serialised. {why}")
        self._barrier = None  # and with it the store

    def forget(self) -> None:
        """Waits for nobody any more, without a word: in a forked child the store's connection is the parent's."""
        self._state, self._barrier, self._accelerator = _IDLE, None, None

    def marker(self, kind: int, value: int = 0) -> Mark:
        """As the ring's, for marks at which phases are kept apart."""
        host = self._ring.marker(kind, value)
        # The collector runs in any thread and at any place; the end of a loop may come to one rank before the others.
        if kind & 0xFF == COLLECTOR or (kind == END | SCOPE and value):
            return host
        place = f"{EDGES[kind >> 8]} {self._ring.name(kind & 0xFF)}"

        def border(time_ns: int) -> None:
            if self._state == _REHEARSING:
                self._seen[place] += 1
            elif self._state == _ISOLATING:
                time_ns = self._meet(place)
            host(time_ns)

        return border

    def _agree(self, time_ns: int, step: int) -> None:
        assert self._barrier is not None
        if not self._start_at and time_ns - self._asked_ns >= ASK_NS:
            self._asked_ns = time_ns
            self._start_at = self._barrier.start_at()
        if self._start_at:
            if step > self._start_at:
                self._barrier.leave(f"This rank was at step {step} when all were to begin at {self._start_at}.")
            elif step == self._start_at:
                self._rehearse()
        elif time_ns - self._begun_ns > max(AGREE_S, self._patience_s) * NS_PER_S:
            self._barrier.leave("Not all ranks have looked at as many steps from inside.")
        if self._barrier.problem:
            self.end()

    def _rehearse(self) -> None:
        self._state = _REHEARSING
        self._rewire(self.marker)

    def _start(self) -> None:
        """Begins to isolate, where the ranks have found together."""
        if self._barrier is not None:
            names = {f"{place}/{count}": place for place, count in self._seen.items()}
            self._barrier.announce(list(names))
            self._barrier.wait("rehearsed", self._patience_s)
            alike = self._barrier.alike(list(names))
            self._apart = {place for name, place in names.items() if name not in alike}
        self._seen.clear()
        self._state = _ISOLATING
        self._meet("start")
        if self._state == _ISOLATING:
            self._ring.marker(BEGIN | SERIALISED)(now())

    def _drain(self) -> str:
        """Waits for the device, if there is one; says why it cannot."""
        try:
            if self._accelerator is not None and not self._accelerator.usable():
                return "The script captured a graph, or used another device."
            if self._accelerator is not None:
                self._accelerator.drain()
        except FAULTS as error:
            return f"The device cannot be drained: {type(error).__name__}: {error}"[:300]
        return ""

    def _meet(self, place: str) -> int:
        """Lets what was begun come to its end, in all ranks.

        Returns:
            When that was.
        """
        problem = self._drain()
        arrived_ns = now()
        if problem:
            self.end(problem)
            return arrived_ns
        if self._barrier is None or place in self._apart:
            return arrived_ns
        self._seen[place] += 1
        met = self._barrier.wait(f"{self._made}/{place}/{self._seen[place]}", self._patience_s)
        left_ns = now()
        if not met:
            self.end()
            return left_ns
        self._ring.marker(BEGIN | RANK_WAIT)(arrived_ns)
        self._ring.marker(END | RANK_WAIT)(left_ns)
        # What happens at the same instant would be read in another order.
        return max(now(), left_ns + 1)
