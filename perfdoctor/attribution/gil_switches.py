"""What switching the GIL costs a thread that gets it.

A thread that calls many short operators gives the GIL away and takes it back for each. While another Python thread
wants it as well, each time means two system calls and a change of threads: CPU time of this thread, not its work.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import CODE_FREQUENCY
from perfdoctor.timeline.job import JobTimeline


def gil_switching(job: JobTimeline, pid: int) -> float:
    """Of the time in which a trainer's main thread runs, the part that goes into switching the GIL.

    It is the part in the kernel, as far as the thread's voluntary switches explain it; 0 where nobody contends for it
    or the machine code was not sampled.
    """
    main = job.threads.main(pid)
    if main is None or not _contended(job, pid):
        return 0.0
    counted = np.flatnonzero(~np.isnan(main.voluntary))
    if len(counted) < 2:
        return 0.0
    first, last = counted[0], counted[-1]
    running_s = float(main.run_ns[last] - main.run_ns[first]) / NS_PER_S
    switches = float(main.voluntary[last] - main.voluntary[first])
    start, end = main.counted_ns[[first, last]].tolist()
    return min(kernel_time(job, pid, start, end), switches * thresholds.GIL_SWITCH_S / running_s) if running_s else 0.0


def kernel_time(job: JobTimeline, pid: int, start_ns: int, end_ns: int) -> float:
    """Of the time in a span in which a trainer's main thread runs, the part in the kernel.

    That is all CPU time without what was sampled in user mode; 0 where the machine code was not sampled.
    """
    main = job.threads.main(pid)
    if main is None:
        return 0.0
    running_s = main.use(start_ns, end_ns)[0] * (end_ns - start_ns) / NS_PER_S
    sampled = sum(row.tid == pid and start_ns <= row.time_ns <= end_ns for row in job.code)
    if not sampled or running_s <= 0:
        return 0.0
    return max(0.0, 1 - sampled / CODE_FREQUENCY / running_s)


def _contended(job: JobTimeline, pid: int) -> bool:
    times = job.threads.main_times(pid)
    return sum(job.gil.is_taken(pid, time) for time in times) >= thresholds.CONTENDED_GIL * len(times) > 0
