"""The trial: some steps on one batch that is kept in memory, so that what the input costs is measured and not inferred.

It changes the training, and is therefore only done when asked for: the model takes some steps on the same batch. The
loader is not asked meanwhile: no batch is lost, their order and the loader's random state stay as they are, and the
epoch has so many steps more. A step that changes its batch in place changes it for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from perfdoctor.probes.inside.ring import RingWriter
from perfdoctor.recording.clock import NS_PER_S

# Workers go on until their queues are full, so the first steps say little: the trial takes both, at least.
MIN_STEPS, MIN_S = 6, 2.0

_Next = Callable[[Any], Any]


class SameBatch:
    """The trial of one session.

    Args:
        wanted: whether the user asked for it.
        ring: takes the number of steps and nanoseconds of one, or why there is no trial.
    """

    def __init__(self, wanted: bool, ring: RingWriter) -> None:
        self.wanted = wanted
        self._ring = ring
        self._loader: Any = None
        self._batch: Any = None
        self._running = False
        self._times_ns: list[int] = []

    def serving(self, fetch: _Next) -> _Next:
        """A loader's ``__next__`` that gives the last batch again while the trial runs."""
        if not self.wanted:
            return fetch

        def __next__(loader: Any) -> Any:
            if self._running and loader is self._loader:
                return self._batch
            batch = fetch(loader)
            if self.wanted and not self._running:
                self._loader, self._batch = loader, batch
            return batch

        return __next__

    def begin(self, time_ns: int, step_s: float, step: int) -> bool:
        """Begins to give the same batch; returns whether there is one."""
        self._running = self.wanted and self._loader is not None
        self._times_ns = [time_ns]
        if self.wanted and not self._running:
            self._ring.note("There was no trial: the batches do not come from a loader of torch.")
        return self._running

    def step_ended(self, time_ns: int, step: int) -> bool:
        """Counts a step; returns whether it was the last one."""
        self._times_ns.append(time_ns)
        steps = len(self._times_ns) - 1
        if steps < MIN_STEPS or time_ns - self._times_ns[0] < MIN_S * NS_PER_S:
            return False
        later = self._times_ns[steps // 2 :]
        lengths = sorted(end - start for start, end in pairwise(later))
        self._ring.say("trial", steps, lengths[len(lengths) // 2])
        self.end()
        return True

    def end(self) -> None:
        """Gives new batches again, and lets go of the old one."""
        self._running = self.wanted = False
        self._loader = self._batch = None
