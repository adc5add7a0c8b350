"""What a simulated thread did, ready to be asked about any instant."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from tests.gpu_jobs.events import S
from tests.gpu_jobs.host import Thread

# The one clock does not begin with the recording.
START = 1_000 * S


class Track:
    """What a thread did, ready to be asked; CPU time and delay so far included."""

    def __init__(self, thread: Thread, end_ns: int) -> None:
        self.thread = thread
        track = [*thread.track]
        self.times = [time for time, _, _ in track]
        self.doing = [doing for _, doing, _ in track]
        self.delayed = [delayed for _, _, delayed in track]
        ends = np.array([*self.times[1:], max(end_ns, self.times[-1] + 1)], dtype=np.int64)
        self.lengths = ends - np.array(self.times, dtype=np.int64)
        runs = np.array([doing.state == "R" and not late for _, doing, late in track])
        self.run_so_far = np.concatenate([[0], np.cumsum(np.where(runs, self.lengths, 0))])
        waits = np.array(self.delayed)
        self.delay_so_far = np.concatenate([[0], np.cumsum(np.where(waits, self.lengths, 0))])
        asleep = np.array([doing.state != "R" for _, doing, _ in track])
        self.switches = np.concatenate([[0], np.cumsum(asleep)])
        kernel = np.array([doing.system for _, doing, _ in track])
        self.system_so_far = np.concatenate([[0.0], np.cumsum(np.where(runs, self.lengths * kernel, 0))])

    def index(self, at_ns: int) -> int:
        return max(0, bisect_right(self.times, at_ns) - 1)

    def run_ns(self, at_ns: int) -> int:
        """Time on a core so far, without short wake-ups of idle threads."""
        index = self.index(at_ns)
        runs = self.doing[index].state == "R" and not self.delayed[index]
        return int(self.run_so_far[index]) + (at_ns - self.times[index] if runs else 0)

    def counters(self, at_ns: int) -> tuple[int, int]:
        """Time on a core and time in a run queue so far, as schedstat has them."""
        index = self.index(at_ns)
        delay = int(self.delay_so_far[index]) + (at_ns - self.times[index] if self.delayed[index] else 0)
        every, wake = self.thread.wakes
        woken = (at_ns + 10 * S) // every * wake if every else 0
        return self.run_ns(at_ns) + woken + 10**9, delay + 10**6

    def system_ns(self, at_ns: int) -> float:
        index = self.index(at_ns)
        doing = self.doing[index]
        now = (at_ns - self.times[index]) * doing.system if doing.state == "R" and not self.delayed[index] else 0.0
        return float(self.system_so_far[index]) + now
