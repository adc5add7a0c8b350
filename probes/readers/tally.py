"""Adding counters up over processes that come and go."""

from collections.abc import Iterable, Mapping


class Tally:
    """The sum of one counter over a changing set of processes, each second of it counted once.

    When a process ends and is waited for, the kernel moves its counters to its parent (``cutime`` of the
    CPU, the I/O counters). So while the members' counters include what they inherited, growth of the
    survivors is real only as far as it exceeds what the members that went had been seen with.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._last: dict[int, float] = {}

    def update(self, values: Mapping[int, float], newborn: Iterable[int] = ()) -> float:
        """Takes one look at all living members.

        Args:
            values: counter by process id, inherited amounts included.
            newborn: those of them that were started since the last look; their whole counter is growth.

        Returns:
            The total since the first look.
        """
        for pid in newborn:
            self._last.setdefault(pid, 0.0)
        grown = sum(value - self._last[pid] for pid, value in values.items() if pid in self._last)
        gone = sum(value for pid, value in self._last.items() if pid not in values)
        # Less growth than went: the parent is outside the job or does not wait, and nothing was inherited.
        self.total += max(grown - gone if grown >= gone else grown, 0.0)
        self._last = dict(values)
        return self.total
