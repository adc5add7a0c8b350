"""Where the steps of a loop end whose batches come from no loader: told from its optimizers."""

# An optimizer has at most so many more turns in a step while others have one.
MAX_TURNS = 20


class LoopSteps:
    """Finds the steps inside of a ``with``.

    A step ends where the first optimizer steps again after all others have stepped. Several ``with`` in a row in which
    it does so a few times are steps themselves, as those of reinforcement learning.

    Attributes:
        first: the optimizer that stepped first in this ``with``; 0 if none has.
    """

    __slots__ = ("_ended_ns", "_inner", "_others", "_repeated", "_turns", "first")

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
            ended, self._ended_ns = self._ended_ns, 0
            return ended
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
