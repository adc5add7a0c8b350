"""What switching the GIL costs a thread that gets it.

A thread that calls many short operators gives the GIL away and takes it back for each. While another Python thread
wants it as well, each time means two system calls and a change of threads: CPU time of this thread, not its work.
"""

from __future__ import annotations

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import CODE_FREQUENCY, CodeSample, ThreadSample
from perfdoctor.timeline.job import JobTimeline


def gil_switching(job: JobTimeline, pid: int) -> float:
    """Of the time in which a trainer's main thread runs, the part that goes into switching the GIL.

    It is the part in the kernel (all CPU time, without what was sampled in user mode), as far as the thread's voluntary
    switches explain it; 0 where nobody contends for it or the machine code was not sampled.
    """
    if not _contended(job, pid):
        return 0.0
    rows = [row for row in job.recording.rows(ThreadSample) if row.tid == pid and row.voluntary is not None]
    if len(rows) < 2:
        return 0.0
    first, last = rows[0], rows[-1]
    running_s = (last.run_ns - first.run_ns) / NS_PER_S
    sampled = sum(
        row.tid == pid and first.time_ns <= row.time_ns <= last.time_ns for row in job.recording.rows(CodeSample)
    )
    switches = (last.voluntary or 0) - (first.voluntary or 0)
    if not sampled or running_s <= 0:
        return 0.0
    return max(0.0, min(1 - sampled / CODE_FREQUENCY / running_s, switches * thresholds.GIL_SWITCH_S / running_s))


def _contended(job: JobTimeline, pid: int) -> bool:
    times = job.threads.main_times(pid)
    return sum(job.gil.is_taken(pid, time) for time in times) >= thresholds.CONTENDED_GIL * len(times) > 0
