"""The training loop as its thread goes through it: where its steps begin and end. All that a step touches is here.

A step ends where the user says so, or where a ``with`` around one step ends. In a ``with`` around the whole loop it
ends where the next batch is asked for after some training work (a backward pass or an optimizer's step), or, where
batches come from no loader, where ``OptimizerTurns`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns as now

from perfdoctor.probes.inside.ring import BEGIN, END, POINT, SCOPE, STEP, MakeMark, RingWriter

# An optimizer has at most so many more turns in a step while others have one.
MAX_TURNS = 20


class TrainingLoop:
    """Finds the steps of the thread that makes it, and marks them.

    After a step of a model each line of memory and each function is found cold, so what is called in every step is
    short, and stands together.

    Args:
        ring: takes the marks.
        due: called with the time at which a step ended, if that is step number ``due_step``, or not before ``due_ns``.

    Attributes:
        thread: identifier of the thread that trains; 0 once perfdoctor has detached.
        marker: gives the function that makes marks of a kind and value.
        steps: how many have ended.
        due_step, due_ns: with which step, and from when on with any, to call ``due``.
        worked: a backward pass or an optimizer's step has begun since the last step ended.
        loader_seen: a batch was taken from a loader.
        asks_compiler: torch does not say by itself when it compiles.
        late_ns: when the last step ended, if ``due`` is still to be called for it; 0 if not.
        observed: observation has begun, and what a step is changes no more.
        on_enter, on_leave: called where the user's outermost ``with`` has begun, and where it has ended.
    """

    __slots__ = (
        "_due",
        "_ended",
        "_ended_inside",
        "_entered",
        "_left",
        "_left_loop",
        "_nesting",
        "_reported",
        "_ring",
        "_turns",
        "asks_compiler",
        "due_ns",
        "due_step",
        "late_ns",
        "loader_seen",
        "marker",
        "observed",
        "on_enter",
        "on_leave",
        "steps",
        "thread",
        "worked",
    )

    def __init__(self, ring: RingWriter, due: Callable[[int], None]) -> None:
        self.thread = get_ident()
        self.steps = self.due_step = self.due_ns = self.late_ns = 0
        self.worked = self.loader_seen = self.observed = False
        self.asks_compiler = True
        self.on_enter: Callable[[], None] | None = None
        self.on_leave: Callable[[], None] | None = None
        self._ring = ring
        self._due = due
        # How many of the user's ``with`` are open, and how many steps have ended within the outermost one.
        self._nesting = self._ended_inside = 0
        # The user says where each step of this ``with`` ends.
        self._reported = False
        self._turns = OptimizerTurns()
        self.mark_with(ring.marker)

    @property
    def inside(self) -> bool:
        """The thread is in the user's ``with``."""
        return self._nesting > 0

    def mark_with(self, marker: MakeMark) -> None:
        """Makes marks in another way from here on."""
        self.marker = marker
        self._entered = marker(BEGIN | SCOPE)
        self._ended = marker(POINT | STEP)
        # 1: there was more than one step in it, so that what comes until the next one belongs to none.
        self._left, self._left_loop = marker(END | SCOPE, 0), marker(END | SCOPE, 1)

    def enter(self, *, reported: bool = False) -> None:
        """The user's ``with`` begins.

        Args:
            reported: the user says where each step ends.
        """
        if get_ident() != self.thread:
            return
        self._nesting += 1
        if self._nesting == 1:
            if self._ended_inside or self._turns.first:
                self._turns.begin_anew(counts=not (self._reported or self.loader_seen or self.observed))
                self._ended_inside = 0
            self._reported = reported
            self._entered(now())
            if self.on_enter:
                self.on_enter()

    def leave(self) -> None:
        """The user's ``with`` ends."""
        if not self._nesting or get_ident() != self.thread:
            return
        self._nesting -= 1
        if self._nesting:
            return
        if self.on_leave:
            self.on_leave()
        if not self._ended_inside and not self._reported:
            self._step_ended(now())
            self._left(now())
            return
        if not self._ended_inside:
            self._ring.note("step() was not called between start() and stop(): no steps are known.")
        elif not self._reported and self.worked:
            self._step_ended(now())
        self._left_loop(now())

    def step(self) -> None:
        """The user says that a step ends here; what else may end one counts no more in this ``with``."""
        if self._nesting and get_ident() == self.thread:
            self._reported = True
            self._step_inside(now())

    def batch_wanted(self) -> None:
        """A batch is asked for, for the first time since the thread has ``worked``."""
        if self._nesting and not self._reported:
            self._step_inside(now())

    def optimizer_begins(self, optimizer: int) -> None:
        """An optimizer's step begins, and no loader was seen."""
        if self._nesting and not self._reported and (ended_ns := self._turns.optimizer_begins(optimizer)):
            # Torch goes through its hooks here: none may be taken out.
            self._step_inside(ended_ns, late=True)
            self.worked = True

    def optimizer_ended(self) -> None:
        """An optimizer's step has ended, and no loader was seen."""
        if self._nesting:
            self._turns.optimizer_ended(now())

    def catch_up(self) -> None:
        """Does what could not be done where a step ended; may take patches out."""
        late_ns, self.late_ns = self.late_ns, 0
        self._due(late_ns)

    def _step_inside(self, time_ns: int, *, late: bool = False) -> None:
        self._ended_inside += 1
        self._step_ended(time_ns, late=late)

    def _step_ended(self, time_ns: int, *, late: bool = False) -> None:
        self._ended(time_ns)
        self.worked = False
        self.steps += 1
        if time_ns >= self.due_ns or self.steps == self.due_step:
            if late:
                self.late_ns = time_ns
            else:
                self.late_ns = 0
                self._due(time_ns)


class OptimizerTurns:
    """Finds the steps of a loop whose batches come from no loader.

    A step ends where the first optimizer steps again after all others have stepped. Several ``with`` in a row in which
    it does so a few times are steps themselves, as those of reinforcement learning.

    Attributes:
        first: the optimizer that stepped first in this ``with``; 0 if none has.
    """

    def __init__(self) -> None:
        self.first = 0
        self._ended_ns = 0
        # How often the first optimizer stepped again in this ``with``, and at most in one of those before.
        self._repeated = self._inner = 0
        # Whether the other optimizers of this ``with`` stepped since its last step ended.
        self._others: dict[int, bool] = {}
        self._turns = 0

    def begin_anew(self, *, counts: bool) -> None:
        """Another ``with`` begins; what the last one held was a step, if it counts."""
        if counts:
            self._inner = max(self._inner, self._repeated)
        self._repeated = self.first = self._ended_ns = self._turns = 0
        self._others.clear()

    def optimizer_begins(self, optimizer: int) -> int:
        """An optimizer's step begins.

        Returns:
            When the last optimizer's step ended, in ns, if a step of the loop ended with it; 0 otherwise.
        """
        if optimizer == self.first and self._ended_ns:
            if self._others_come():
                return 0
            self._repeated += 1
            if self._repeated <= 2 * self._inner:
                return 0
            ended_ns, self._ended_ns = self._ended_ns, 0
            return ended_ns
        if not self.first:
            self.first = optimizer
        elif optimizer != self.first and self._turns <= MAX_TURNS:
            self._others[optimizer] = True
        return 0

    def optimizer_ended(self, time_ns: int) -> None:
        """An optimizer's step has ended."""
        self._ended_ns = time_ns

    def _others_come(self) -> bool:
        """Whether other optimizers step before this step of the loop ends: a critic often has several turns."""
        if all(self._others.values()):
            self._others = dict.fromkeys(self._others, False)
            self._turns = 0 if self._turns <= MAX_TURNS else self._turns
            return False
        self._turns += 1
        if self._turns > MAX_TURNS:
            self._others.clear()  # for good: they come too seldom, or are others each time
        return self._turns <= MAX_TURNS
