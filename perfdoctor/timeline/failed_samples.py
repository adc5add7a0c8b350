"""Looks at a main thread's stack that came to nothing, and the stacks that stand in for what was not seen.

py-spy does not stop the process, so it misses stacks that change while it reads them: deep ones, and those of Python
code more than those of long calls into C. What was seen is thus no fair sample. But it is known when looks were missed,
and that Python code ran then. Stacks that were seen while Python code ran stand in for those that were not, as in
surveys, where answers of those who are alike stand in for missing ones (hot-deck imputation).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge.symbols import classify
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CODE_FREQUENCY, CodeSample, StackMissed
from perfdoctor.timeline.stacks import Track

# A sample of machine code tells what ran within half the time to the next one.
_NEAR_NS = NS_PER_S // CODE_FREQUENCY // 2


@dataclass(frozen=True)
class Misses:
    """Of one main thread.

    Attributes:
        times_ns: when its stack was looked for and not found, in order.
        stand_ins: its stacks that were seen while the interpreter was at work.
    """

    times_ns: npt.NDArray[np.int64]
    stand_ins: Track

    def is_nearer(self, time_ns: int, distance_ns: int) -> bool:
        """Whether a missed look is nearer to an instant than this."""
        return bool(_distances_ns(self.times_ns, np.array([time_ns]))[0] < distance_ns)


def find_misses(recording: Recording, track: Track) -> Misses | None:
    """The missed looks at a main thread; None if there were none, or nothing can stand in for them."""
    failed = [row.time_ns for row in recording.rows(StackMissed) if (row.pid, row.ident) == (track.pid, track.ident)]
    times = np.sort(np.array([*failed, *track.torn_ns.tolist()], dtype=np.int64))
    if not len(times):
        return None
    in_python = (
        row.time_ns
        for row in recording.rows(CodeSample)
        if row.tid == track.pid and classify(row.image, row.symbol) == "interpreter"
    )
    distances = _distances_ns(np.sort(np.array([*in_python], dtype=np.int64)), track.times_ns)
    alike = (distances <= _NEAR_NS) & (track.stacks >= 0)
    if not alike.any():
        return None
    return Misses(times, replace(track, times_ns=track.times_ns[alike], stacks=track.stacks[alike]))


def _distances_ns(times: npt.NDArray[np.int64], instants: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """How far each instant is from the nearest of some times, in order."""
    after = np.searchsorted(times, instants)
    around = np.concatenate([[-np.inf], times, [np.inf]])
    return np.asarray(np.minimum(instants - around[after], around[after + 1] - instants), dtype=np.float64)
