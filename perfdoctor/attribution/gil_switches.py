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

    It is the part in the kernel (all CPU time, without what was sampled in user mode), as far as the thread's voluntary
    switches explain it; 0 where nobody contends for it or the machine code was not sampled.
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
    sampled: int = sum(row.tid == pid and start <= row.time_ns <= end for row in job.code)
    if not sampled or running_s <= 0:
        return 0.0
    in_kernel_s, switching_s = running_s - sampled / CODE_FREQUENCY, switches * thresholds.GIL_SWITCH_S
    return max(0.0, min(in_kernel_s, switching_s)) / running_s


def _contended(job: JobTimeline, pid: int) -> bool:
    times = job.threads.main_times(pid)
    return sum(job.gil.is_taken(pid, time) for time in times) >= thresholds.CONTENDED_GIL * len(times) > 0
