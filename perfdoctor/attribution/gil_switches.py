"""What handing the interpreter lock over costs a thread that gets it.

A thread that calls many short operators gives the lock away and takes it back for each. While another Python thread
wants it as well, each time means two system calls and a change of threads: CPU time of this thread, not its work.
"""

from __future__ import annotations

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import CODE_FREQUENCY, CodeSample, ThreadSample
from perfdoctor.timeline.job import Scene

# Where another thread holds the lock in fewer looks than this, it is not contended.
CONTENDED = 0.1
# What one change of threads costs at most, with its two calls of futex. Measured on a virtual machine: 17 us.
PER_SWITCH_S = 25e-6


def handover_fraction(scene: Scene, pid: int) -> float:
    """Of the time in which a trainer's main thread runs, the part that goes into handing over the interpreter lock.

    It is the part in the kernel (all CPU time, without what was sampled in user mode), as far as the thread's voluntary
    switches explain it; 0 where nobody contends for the lock or the machine code was not sampled.
    """
    if not _contended(scene, pid):
        return 0.0
    rows = [row for row in scene.recording.rows(ThreadSample) if row.tid == pid and row.voluntary is not None]
    if len(rows) < 2:
        return 0.0
    first, last = rows[0], rows[-1]
    running_s = (last.run_ns - first.run_ns) / NS_PER_S
    sampled = sum(
        row.tid == pid and first.time_ns <= row.time_ns <= last.time_ns for row in scene.recording.rows(CodeSample)
    )
    switches = (last.voluntary or 0) - (first.voluntary or 0)
    if not sampled or running_s <= 0:
        return 0.0
    return max(0.0, min(1 - sampled / CODE_FREQUENCY / running_s, switches * PER_SWITCH_S / running_s))


def _contended(scene: Scene, pid: int) -> bool:
    times = scene.timelines.main_times(pid)
    return sum(scene.timelines.lock_is_taken(pid, time) for time in times) >= CONTENDED * len(times) > 0
