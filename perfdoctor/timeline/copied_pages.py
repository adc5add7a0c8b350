"""Pages that a process takes faults for after a fork: parent and child share all memory until one of them writes.

``fork`` copies no memory, it makes all of it read-only. The first write to each page after that is a page fault, in
which the kernel copies the page, or only makes it writable again where the child is gone. Whoever trains writes to all
parameters, gradients and buffers in each step, so after a fork the first steps are slower, wherever they write.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import CODE_FREQUENCY
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.threads import ThreadSeries, Times

Floats = npt.NDArray[np.float64]
# Ages by which time after a fork is distinguished: most pages are written to in the first step, whatever that takes.
_AGES_NS = np.array([0, *(10_000_000 * 2**number for number in range(14))], dtype=np.float64)


class CopiedPages:
    """What a process's main thread spends on such faults.

    Faults after a fork count as far as they are more than in the later parts of the time until the next one. What they
    take is known by their price, and by how much more of the thread's time is the kernel's than it is then.

    Args:
        main: the thread.
        code: its samples of machine code.
        children: processes that it forked.
        ended_ns: when others had ended that were not seen, too soon after their start for that.
        fresh_s: CPU seconds that a fault for fresh memory takes on the machine; 0 where that was not measured.

    Attributes:
        per_fork: how many more pages a fork makes it take faults for.
    """

    def __init__(
        self,
        main: ThreadSeries,
        code: CodeSamples,
        children: Sequence[Process],
        fresh_s: float,
        ended_ns: Sequence[float] = (),
    ) -> None:
        self._forks = _apart(np.array([*(child.started_ns for child in children), *ended_ns], dtype=np.float64))
        # After each fork, until when faults count: for half of the time until the next one.
        self._until_ns = np.append(np.diff(self._forks), _usual(np.diff(self._forks))) / 2
        self._parts = np.zeros(len(_AGES_NS))
        self.per_fork = 0.0
        if len(self._forks) and fresh_s > 0:
            self._read(_Gaps(main, code, children, self._forks), fresh_s)

    def part(self, time_ns: int) -> float:
        """Of the thread's time on a CPU around an instant, the part that goes into such faults."""
        fork = int(np.searchsorted(self._forks, time_ns, "right")) - 1
        if fork < 0 or (age := time_ns - self._forks[fork]) >= self._until_ns[fork]:
            return 0.0
        return float(self._parts[np.searchsorted(_AGES_NS, age, "right") - 1])

    def _read(self, gaps: _Gaps, fresh_s: float) -> None:
        if gaps.forks < thresholds.FORKS:
            return
        later = [gaps.chosen(gaps.quarter == quarter) for quarter in (1, 2, 3)]
        usual = max((some.faults / some.running_s for some in later if some.running_s > 0), default=np.inf)
        early = (gaps.quarter == 0) | (gaps.quarter == 1)
        taken_s = 0.0
        for number in range(len(_AGES_NS)):
            some = gaps.chosen(early & (gaps.ages == number))
            more = some.faults - usual * some.running_s
            if more > 0:
                times = some.shared * thresholds.COPIED_PAGE + (1 - some.shared) * thresholds.KEPT_PAGE
                self._parts[number] = min(1.0, more * times * fresh_s / some.running_s)
                self.per_fork += more / gaps.forks
                taken_s += more * times * fresh_s
        if taken_s > 0:
            slowed = gaps.chosen(early & (self._parts[gaps.ages] > 0))
            self._parts *= _settled(taken_s, slowed.kernel_beyond_s(gaps.chosen(gaps.quarter >= 2))) / taken_s


class _Some:
    """Sums over some of the gaps between a thread's samples."""

    def __init__(self, running_s: float, faults: float, user_s: float | None, shared: float) -> None:
        self.running_s, self.faults, self._user_s, self.shared = running_s, faults, user_s, shared

    def kernel_beyond_s(self, other: _Some) -> tuple[float, float] | None:
        """How much longer the kernel is busy than it would be as in other gaps, and the standard error of that.

        None where samples do not tell that. Of so many samples the square root is the error.
        """
        if self._user_s is None or not other._user_s or other.running_s <= 0:
            return None
        usual_s = other._user_s * self.running_s / other.running_s
        error_s = np.sqrt((self._user_s + usual_s * self.running_s / other.running_s) / CODE_FREQUENCY)
        return usual_s - self._user_s, float(error_s)


class _Gaps:
    """What a thread did between each two readings of its faults, in the times between forks.

    Attributes:
        forks: times from one fork to the next, of which the beginning was seen.
        quarter: in which of the four parts of such a time each gap lies, -1 for none.
        ages: the number of the age that it has since the fork.
    """

    def __init__(self, main: ThreadSeries, code: CodeSamples, children: Sequence[Process], forks: Floats) -> None:
        read = ~np.isnan(main.minor_faults)
        times, faults, run = main.counted_ns[read], main.minor_faults[read], main.run_ns[read]
        middles = (times[1:] + times[:-1]) / 2
        fork = np.searchsorted(forks, middles, "right") - 1
        within = (fork >= 0) & (fork < len(forks) - 1)
        fork = np.where(within, fork, 0)
        lengths = np.append(np.diff(forks), 1.0)
        since = middles - forks[fork]
        self.quarter = np.where(within, (4 * since / lengths[fork]).astype(np.int64), -1)
        self.ages = np.searchsorted(_AGES_NS, since, "right") - 1
        self.forks = len(np.unique(fork[self.quarter == 0]))
        self._faults, self._running_s = np.diff(faults), np.diff(run) / NS_PER_S
        seen = np.searchsorted(code.times_ns, times)
        self._user_s = np.diff(seen) / CODE_FREQUENCY if len(code) and not code.by_stops else None
        self._shared = any_alive(children, middles)

    def chosen(self, chosen: npt.NDArray[np.bool_]) -> _Some:
        """The sums over some of them."""
        faults = float(self._faults[chosen].sum())
        shared = float((self._faults * self._shared)[chosen].sum()) / faults if faults else 0.0
        user_s = None if self._user_s is None else float(self._user_s[chosen].sum())
        return _Some(float(self._running_s[chosen].sum()), faults, user_s, shared)


def _settled(priced_s: float, kernel_s: tuple[float, float] | None) -> float:
    """What faults take by their price, and by the time that the kernel takes: the mean, each by how sure it is."""
    if kernel_s is None or kernel_s[1] <= 0:
        return priced_s
    by_price, by_kernel = (thresholds.PRICE_OF_PAGES * priced_s) ** -2, kernel_s[1] ** -2
    return max(0.0, (priced_s * by_price + kernel_s[0] * by_kernel) / (by_price + by_kernel))


def _usual(lengths: Floats) -> float:
    """The length of which shorter ones take half of all time."""
    ordered = np.sort(lengths)
    together = np.cumsum(ordered)
    return float(ordered[np.searchsorted(together, together[-1] / 2)]) if len(ordered) else 0.0


def _apart(forks: Floats) -> Floats:
    """The last fork of each burst, as the several workers of a loader are started, some at the same tick of a clock."""
    forks = np.unique(forks)
    lengths = np.diff(forks)
    return forks[np.append(lengths >= thresholds.BURST * _usual(lengths), True)] if len(forks) else forks


def any_alive(children: Sequence[Process], times_ns: Floats | Times) -> npt.NDArray[np.bool_]:
    """Whether any child lives at each instant."""
    begun = np.searchsorted(np.sort([child.started_ns for child in children]), times_ns, "right")
    ended = [child.ended_ns for child in children if child.ended_ns is not None]
    return np.asarray(begun > np.searchsorted(np.sort(ended), times_ns, "right"))
