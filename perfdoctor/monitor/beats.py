"""Beats of a job: how many steps it made in some seconds, and what was read meanwhile; made call by call."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from perfdoctor.knowledge import thresholds
from perfdoctor.monitor.slow_readings import SIGNALS, Signal
from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.recording.schema import BACKWARD_CALL, OPTIMIZER_CALL, CountedCall, Reading, Sample
from perfdoctor.results.history import Beat, LongStep
from perfdoctor.timeline.step_borders import Border, BorderFinder

# Steps that tell how long one usually takes.
_USUAL = 61
# A beat holds so many steps at least, so that a long one can be distinguished from the others ...
_FEWEST = 8
# ... but for one that has lasted so many times as long as it was to.
_LONGEST = 10


_Values = dict[str, tuple[int, float]]  # by subject: when it was read, and what
_OVER: dict[str, Callable[[Iterable[float]], float]] = {"sum": math.fsum, "least": min, "most": max}
_RATES = {
    (signal.probe, subject, signal.reading): name
    for name, signal in SIGNALS.items()
    for subject in signal.subjects
    if signal.how == "rate"
}


class StepCounter:
    """The steps of one trainer of the job: of several that which is seen first.

    Attributes:
        pid: the trainer; 0 before it is known.
        count: how many there were.
        ended_ns: where the last one did; 0 before the first, and after a break.
        lengths: of the last ones, in seconds.
    """

    def __init__(self) -> None:
        self.pid = 0
        self._calls: dict[int, int] = {}
        self._tid = 0
        self._finder = BorderFinder(BACKWARD_CALL)
        self._sees_optimizers = False
        self.count = 0
        self.ended_ns = 0
        self.lengths: deque[float] = deque(maxlen=_USUAL)

    @property
    def usual_s(self) -> float | None:
        """Seconds that a step usually takes; None before some were seen."""
        return statistics.median(self.lengths) if len(self.lengths) >= _FEWEST else None

    def silent_s(self, now_ns: int) -> float:
        """How many seconds ago a step ended; 0 before the first, and after a break."""
        return seconds(now_ns - self.ended_ns) if self.ended_ns else 0.0

    def take(self, call: CountedCall) -> tuple[float, Border] | None:
        """The seconds of the step that a call ends, and its end; None if it ends none."""
        self.pid = self.pid or call.pid
        if call.pid != self.pid or not self._is_of_busiest(call.tid):
            return None
        if call.what == OPTIMIZER_CALL and not self._sees_optimizers:
            # What was counted until now were backward passes, of which several may make a step.
            self._sees_optimizers, self.ended_ns, self.count = True, 0, 0
            self._finder = BorderFinder(OPTIMIZER_CALL, after_backward=True)
            self._finder.take(call._replace(what=BACKWARD_CALL))  # that before it ended a pass
            self.lengths.clear()
        border = self._finder.take(call)
        if border is None:
            return None
        began_ns, self.ended_ns = self.ended_ns, border.time_ns
        self.count += 1
        if not began_ns or border.after_gap:
            return None
        length_s = seconds(border.time_ns - began_ns)
        self.lengths.append(length_s)
        return length_s, border

    def _is_of_busiest(self, tid: int) -> bool:
        """Whether a call is one of the thread that makes most; another one that does so starts anew."""
        self._calls[tid] = self._calls.get(tid, 0) + 1
        if tid != self._tid and self._calls[tid] > self._calls.get(self._tid, 0):
            self._tid, self.ended_ns = tid, 0
        return tid == self._tid


class Beats:
    """Makes beats of what probes see.

    Args:
        epoch_ns: the time since 1970 at which the one clock began.
        lasts_s: how long a beat is to last.
        since_ns: what was called before that was another trainer's.
    """

    def __init__(self, epoch_ns: int, lasts_s: float, since_ns: int = 0) -> None:
        self._epoch_ns, self._lasts_ns, self._since_ns = epoch_ns, int(lasts_s * NS_PER_S), since_ns
        self.steps = StepCounter()
        self._began_ns = 0
        self._steps: list[tuple[float, int, int]] = []
        self._sample: dict[tuple[str, str, str], _Values] = {}
        self._since: dict[str, tuple[int, float]] = {}

    def date(self, time_ns: int) -> float:
        """An instant of the one clock in seconds since 1970."""
        return (self._epoch_ns + time_ns) / NS_PER_S

    def resume(self, epoch_ns: int) -> None:
        """Goes on after a moment in which nobody counted; the time since 1970 may have been set meanwhile."""
        self._epoch_ns = epoch_ns
        self.steps.ended_ns = 0

    def take(self, samples: Iterable[Sample]) -> None:
        """Takes what a probe has seen at once: whoever is not among it any more is gone."""
        sample: dict[tuple[str, str, str], _Values] = {}
        for one in samples:
            if isinstance(one, CountedCall) and one.time_ns >= self._since_ns:
                if (step := self.steps.take(one)) is not None:
                    self._steps.append((step[0], step[1].time_ns, self.steps.count - 1))
            elif isinstance(one, Reading) and one.value is not None:
                key = (one.probe, one.subject.partition(":")[0], one.name)
                sample.setdefault(key, {})[one.subject] = one.time_ns, one.value
                if key in _RATES:
                    self._since.setdefault(_RATES[key], (one.time_ns, one.value))
        self._sample.update(sample)

    def next(self, now_ns: int) -> Beat | None:
        """The beat that ends now; None if none does."""
        self._began_ns = self._began_ns or now_ns
        lasted_ns = now_ns - self._began_ns
        enough = len(self._steps) >= _FEWEST or not self._steps
        if lasted_ns < self._lasts_ns * (1 if enough else _LONGEST):
            return None
        return self.end(now_ns)

    def end(self, now_ns: int) -> Beat:
        """The beat so far; the next one begins now."""
        beat = Beat(
            began=round(self.date(self._began_ns or now_ns), 3),
            lasted_s=round(seconds(now_ns - (self._began_ns or now_ns)), 3),
            steps=len(self._steps),
            steps_s=round(sum(length for length, *_ in self._steps), 6),
            long=tuple(self._long_steps()),
            readings=dict(self._read()),
        )
        self._began_ns = now_ns
        self._steps.clear()
        return beat

    def _long_steps(self) -> Iterator[LongStep]:
        """Those that stand out; none where the job has become slower as a whole."""
        lengths = [length for length, *_ in self._steps]
        usual = self.steps.usual_s if len(lengths) < _FEWEST else statistics.median(lengths)
        if usual is None:
            return
        least = usual + max(float(thresholds.LONG_STEP_LEAST_S), thresholds.MUCH_LONGER_STEP * usual)
        long = [step for step in self._steps if step[0] > least]
        if 2 * len(long) >= len(lengths) > 1:
            return
        for length, ended_ns, number in long:
            began = self.date(ended_ns) - length
            yield LongStep(round(began, 3), round(length - usual, 6), number)

    def _read(self) -> Iterator[tuple[str, float]]:
        for name, signal in SIGNALS.items():
            found = self._found(signal, signal.reading)
            if not found:
                continue
            if signal.how != "rate":
                shared = [value for _, value in self._found(signal, signal.shared)]
                if not signal.shared or shared:
                    of_each = _OVER[signal.how](value for _, value in found)
                    yield name, of_each + max(shared, default=0.0)
            elif found[0][0] > self._since[name][0]:
                (began_ns, before), (ended_ns, after) = self._since[name], found[0]
                self._since[name] = found[0]
                yield name, round(max(0.0, (after - before) / seconds(ended_ns - began_ns)), 3)

    def _found(self, signal: Signal, reading: str) -> list[tuple[int, float]]:
        """The last sample of a reading, of each subject of a signal."""
        keys = [(signal.probe, subject, reading) for subject in signal.subjects]
        return [value for key in keys for value in self._sample.get(key, {}).values()]
