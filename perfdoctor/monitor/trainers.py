"""Whether the job's trainer is still the same: below one launcher, too, it ends and is started again.

That the trainer is another one is known here alone. Whoever counts its steps or knows its level begins anew then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from perfdoctor.capture.host_processes import host_processes
from perfdoctor.capture.runs import Look
from perfdoctor.results.history import Appeared


def find_trainers(pids: Collection[int]) -> frozenset[int]:
    """Those that train, of a job's processes that have torch loaded: its ranks, or else the tops without launchers."""
    processes = host_processes()
    look = Look(processes, [pid for pid in pids if pid in processes])
    able = [one for one in map(look.member, look.torch) if not one.worker and not one.launches]
    ranked = frozenset(one.pid for one in able if one.rank is not None)
    names = {one.pid for one in able}
    return ranked or frozenset(one.pid for one in able if one.parent not in names)


class Trainers:
    """Follows who trains: whoever makes the steps that are counted, and all ranks together where none are.

    Args:
        find: those that train, of processes that have torch loaded.
    """

    def __init__(self, find: Callable[[Collection[int]], frozenset[int]] = find_trainers) -> None:
        self._find = find
        self._followed: frozenset[int] = frozenset()
        self._searched: frozenset[int] = frozenset()
        self._before: frozenset[int] = frozenset()
        self._gone = False

    def follow(self, pids: Collection[int], forked: Collection[int], counted: int) -> tuple[Appeared, int] | None:
        """What became of the trainer since it was asked last, and its process; None if nothing.

        Args:
            pids: the processes of the job that have torch loaded.
            forked: those that run their parent's program, as loader workers do: they train only if they make steps.
            counted: that whose steps are counted; 0 for none.
        """
        there = frozenset(pids)
        own = there.difference(forked)
        if self._followed and not self._followed & there:
            ended = min(self._followed)
            self._followed, self._gone = frozenset(), True
            return Appeared.ENDED, ended
        if self._followed:
            self._before = there
        if counted in there:
            self._followed = frozenset({counted})
        elif own != self._searched:
            self._searched = own
            # Other ranks and a launcher outlive a trainer, and do not take its place unless they make steps.
            new = own - self._before if self._gone else own
            self._followed = (self._find(own) & new) or self._followed
        if self._followed and self._gone:
            self._gone = False
            return Appeared.STARTED_AGAIN, min(self._followed)
        return None
