"""In which states threads were seen at which stack: a call into C that blocks has no frame of its own.

``time.sleep``, ``os.fsync`` or a database's driver are a line of whoever calls them. Where steps are shorter than the
time between two samples, the nearest stack is often that of another part of the step: then it helps to know that a
thread never runs at one line, and never sleeps at another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.threads import SLEEPS
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.stacks import StackSeries
from perfdoctor.timeline.threads import ThreadSeries, ThreadState

_RUNNABLE = "R"


class StackStates:
    """Learns from samples of a stack and of a state at almost the same time.

    Args:
        threads: their stacks and their states; ranks run the same code, so that all of them say something of a stack.
        holds_gil: whether the main thread of a process holds its GIL at an instant; None where that is unknown.
    """

    def __init__(
        self,
        threads: Iterable[tuple[StackSeries, ThreadSeries]],
        holds_gil: Callable[[int, int], bool | None],
    ) -> None:
        self._samples: Amounts[int] = Amounts()
        self._seen: Amounts[tuple[int, str]] = Amounts()
        self._locked: Amounts[tuple[int, bool | None]] = Amounts()
        for stacks, states in threads:
            for stack, index, near in _pairs(stacks, states):
                kind = _kind(states.states[index], states.syscalls[index])
                self._samples[stack] += near
                self._seen[stack, kind] += near
                if kind == _RUNNABLE:
                    self._locked[stack, holds_gil(stacks.pid, int(states.times_ns[index]))] += near

    def is_usual(self, stack: int, state: ThreadState, holds_gil: bool | None) -> bool:
        """Whether a state is not one in which threads were hardly ever seen at a stack.

        Whether a thread runs at a line at all, and whether it sleeps there, shows in a few samples. Who mostly runs
        somewhere may still wait for a lock, a disk or other threads now and then, which takes more of them.

        Args:
            stack: index into ``Stacks.frames``.
            state: of the thread.
            holds_gil: it holds the GIL; None where that is unknown.
        """
        kind = _kind(state.state, state.syscall)
        least = thresholds.UNUSUAL_STATE if kind == _RUNNABLE or kind in SLEEPS else thresholds.UNUSUAL_WAIT
        if _part(self._seen[stack, kind], self._samples[stack]) < least:
            return False
        if kind != _RUNNABLE or holds_gil is None:
            return True
        either = self._locked[stack, True] + self._locked[stack, False]
        return _part(self._locked[stack, holds_gil], either) >= thresholds.UNUSUAL_WAIT


def _part(seen: float, samples: float) -> float:
    """Half a sample is added (Jeffreys' prior): what was not seen in few samples may well be there."""
    return (seen + 0.5) / (samples + 1)


def _kind(state: str, syscall: str | None) -> str:
    return state if state == _RUNNABLE or syscall is None else syscall


def _pairs(stacks: StackSeries, states: ThreadSeries) -> Iterator[tuple[int, int, float]]:
    """Each stack with the states before and after it: the stack, which state, and how near that is, from 0 to 1."""
    reach_ns = thresholds.SAME_INSTANT_S * NS_PER_S
    times = states.times_ns.tolist()
    after = np.searchsorted(states.times_ns, stacks.times_ns).tolist()
    for time_ns, stack, following in zip(stacks.times_ns.tolist(), stacks.stacks.tolist(), after, strict=True):
        for index in (following - 1, following):
            if stack >= 0 and 0 <= index < len(times) and (apart_ns := abs(times[index] - time_ns)) < reach_ns:
                yield stack, index, 1 - apart_ns / reach_ns
