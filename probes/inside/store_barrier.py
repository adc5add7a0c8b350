"""A barrier of ranks without a collective: each counts itself in the job's own store.

A collective that a rank does not come to hangs the others. Here each waits a while, and then goes on alone for good.
The store is asked in a thread of its own, so that not even a store that does not answer holds up the training.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

# What a store may raise that has gone with its host, or that is of an unusual kind.
_FAULTS = (RuntimeError, ValueError, TypeError, AttributeError, OSError)
_OVER, _FROM = "over", "from"
# A rank that waits asks again after this fraction of the time that it has waited for: often where ranks are close, and
# seldom where many wait for long.
_PAUSE, _MOST_S, _LEAST_S = 0.05, 0.01, 0.0001
# A store answers some 100000 questions a second, of all ranks together.
_RANK_S = 0.00005
# For a question that has its answer at once.
ANSWER_S = 2.0
# A prefix of keys, so that nothing of the job's own is touched.
_PREFIX = "perfdoctor/timer"


class StoreBarrier:
    """This rank's part in all barriers.

    Args:
        store: the job's, as ``torch.distributed`` has it.
        ranks: how many there are.

    Attributes:
        problem: why this rank waits for nobody any more; "" while it does.
    """

    def __init__(self, store: Any, ranks: int) -> None:
        self._store = store
        self._ranks = ranks
        self.problem = ""

    def ready(self, start_at: int) -> None:
        """Says that this rank is ready; the last one says at which step all begin.

        Args:
            start_at: that step, if this is the last rank.
        """

        def count(store: Any) -> None:
            if store.add("ready", 1) == self._ranks:
                store.add(_FROM, start_at)

        self._ask(count, ANSWER_S)

    def start_at(self) -> int:
        """At which step all begin; 0 if that is not known yet."""
        return int(self._ask(lambda store: store.add(_FROM, 0), ANSWER_S) or 0)

    def alike(self, names: list[str]) -> set[str]:
        """Which of this rank's names all ranks have. All have to have come to ``wait`` after they announced theirs."""
        return set(self._ask(lambda store: [one for one in names if self._count(store, one) == self._ranks], 10) or ())

    def announce(self, names: list[str]) -> None:
        """Says which names this rank has."""
        self._ask(lambda store: [store.add(f"has/{name}", 1) for name in names], ANSWER_S)

    def wait(self, place: str, seconds: float) -> bool:
        """Waits for all other ranks to come to the same place.

        Returns:
            Whether they did; if not, this rank waits for nobody any more.
        """

        def come(store: Any) -> str:
            came = store.add(place, 1)
            begun = time.monotonic()
            while came < self._ranks:
                if store.add(_OVER, 0):
                    return "Another rank had given up."
                waited = time.monotonic() - begun
                if waited > seconds:
                    return f"Only {came} of {self._ranks} ranks came to the same place within {seconds:.1f} s."
                time.sleep(max(_LEAST_S, _RANK_S * self._ranks, min(_MOST_S, _PAUSE * waited)))
                came = store.add(place, 0)
            return ""

        problem = self._ask(come, seconds + ANSWER_S)
        if problem:
            self.leave(problem)
        return not self.problem

    def leave(self, problem: str) -> None:
        """Waits for nobody any more, and lets the others know."""
        if not self.problem:
            self._ask(lambda store: store.add(_OVER, 1), ANSWER_S)
            self.problem = self.problem or problem

    @staticmethod
    def _count(store: Any, name: str) -> int:
        return int(store.add(f"has/{name}", 0))

    def _ask(self, question: Callable[[Any], Any], seconds: float) -> Any:
        """What the store answers; None if it does not, or a rank has given up."""
        if self.problem:
            return None
        answers: list[Any] = []
        problems: list[str] = []

        def ask() -> None:
            try:
                answers.append(question(self._store))
            except _FAULTS as error:
                problems.append(f"The job's store failed: {type(error).__name__}: {error}"[:300])

        thread = threading.Thread(target=ask, name="perfdoctor-barrier", daemon=True)
        try:
            thread.start()
            thread.join(seconds)
        except RuntimeError as error:  # the interpreter ends
            problems.append(f"The job's store cannot be asked: {error}.")
        if not answers:
            self.problem = problems[0] if problems else "The job's store does not answer."
        return answers[0] if answers else None


def store_barrier() -> StoreBarrier | None:
    """The barrier of this job's ranks; None for a job of one, or where there is no store to count in."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
        return None
    try:
        from torch.distributed import distributed_c10d

        store = distributed_c10d.PrefixStore(_PREFIX, distributed_c10d._get_default_store())
    except _FAULTS:
        return None
    return StoreBarrier(store, dist.get_world_size())
