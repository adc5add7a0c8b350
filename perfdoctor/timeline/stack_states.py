"""In which states threads were seen at which stack: a call into C that blocks has no frame of its own.

``time.sleep``, ``os.fsync`` or a database's driver are a line of whoever calls them. Where steps are shorter than the
time between two samples, the nearest stack is often that of another part of the step: then it helps to know how often
a thread runs at one line, sleeps at another, and collects garbage at a third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.stacks import StackSeries
from perfdoctor.timeline.threads import ThreadSeries, ThreadState

# Samples of a stack and of a state that are less apart are of the same instant.
SAME_INSTANT_NS = int(thresholds.SAME_INSTANT_S * NS_PER_S)
_RUNNABLE, _COLLECTING = "R", "collecting"


class StackStates:
    """Learns from samples of a stack and of a state at almost the same time.

    Args:
        threads: their stacks and their states; ranks run the same code, so that all of them say something of a stack.
        is_collecting: whether the garbage collector of a process runs at an instant.
    """

    def __init__(
        self,
        threads: Iterable[tuple[StackSeries, ThreadSeries]],
        is_collecting: Callable[[int, int], bool],
    ) -> None:
        self._samples: Amounts[int] = Amounts()
        self._seen: Amounts[tuple[int, str]] = Amounts()
        kinds: Amounts[str] = Amounts()
        for stacks, states in threads:
            for stack, index, near in _pairs(stacks, states):
                collecting = is_collecting(stacks.pid, int(states.times_ns[index]))
                kind = _kind(states.states[index], states.syscalls[index], collecting=collecting)
                self._samples[stack] += near
                self._seen[stack, kind] += near
                kinds[kind] += near
        self._usual = kinds.fractions()  # how often a state was seen, at whichever stack

    def likelihood(self, stack: int, state: ThreadState, *, collecting: bool) -> float:
        """How likely a thread is in a state at a stack, from 0 to 1; 1 of a state that was seen at none.

        A stack of which little is known is taken to be like the others: they count as one sample of it.

        Args:
            stack: index into ``Stacks.frames``.
            state: of the thread.
            collecting: the garbage collector of its process runs.
        """
        kind = _kind(state.state, state.syscall, collecting=collecting)
        if kind not in self._usual:
            return 1.0
        return (self._seen[stack, kind] + self._usual[kind]) / (self._samples[stack] + 1)


def _kind(state: str, syscall: str | None, *, collecting: bool) -> str:
    if state == _RUNNABLE:
        return _COLLECTING if collecting else _RUNNABLE
    return syscall or state


def _pairs(stacks: StackSeries, states: ThreadSeries) -> Iterator[tuple[int, int, float]]:
    """Each stack with the states before and after it: the stack, which state, and how near that is, from 0 to 1."""
    times = states.times_ns.tolist()
    after = np.searchsorted(states.times_ns, stacks.times_ns).tolist()
    for time_ns, stack, following in zip(stacks.times_ns.tolist(), stacks.stacks.tolist(), after, strict=True):
        for index in (following - 1, following):
            if stack >= 0 and 0 <= index < len(times) and (apart_ns := abs(times[index] - time_ns)) < SAME_INSTANT_NS:
                yield stack, index, 1 - apart_ns / SAME_INSTANT_NS
