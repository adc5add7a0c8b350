"""Which processes copy little through pipes and sockets: a running thread of theirs is hardly in such a copy.

States and stacks are sampled apart. A process that waits for its next request most of the time has nearly all its
stacks in that wait, so the stack nearest to an instant in which it runs is one of waiting, although it does its work.
"""

from __future__ import annotations

from collections.abc import Iterable

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.readings import Counters
from perfdoctor.timeline.threads import JobThreads

_COPIES = ("read", "write")


def hardly_copying(processes: Iterable[Process], threads: JobThreads, counters: Counters) -> frozenset[int]:
    """Those whose read and write calls can take no more than a small part of their main thread's CPU time.

    Args:
        processes: of the job.
        threads: their threads.
        counters: what was counted of them; those of which nothing was are not in the answer.
    """
    return frozenset(one.pid for one in processes if _copies_little(one.pid, threads, counters))


def _copies_little(pid: int, threads: JobThreads, counters: Counters) -> bool:
    main, subject = threads.main(pid), f"pid:{pid}"
    if main is None or len(main.counted_ns) < 2:
        return False
    ran_s = float(main.run_ns[-1] - main.run_ns[0]) / NS_PER_S
    calls = [counters.get(subject, f"{way}_calls_total") for way in _COPIES]
    if any(one is None for one in calls) or ran_s <= 0:
        return False
    called = sum(counters.growth(subject, f"{way}_calls_total") for way in _COPIES)
    copied = sum(counters.growth(subject, f"{way}_call_bytes_total") for way in _COPIES)
    most_s = called * thresholds.SECONDS_PER_COPY + copied / thresholds.COPIED_BYTES_PER_S
    return most_s < thresholds.HARDLY_COPIES * ran_s
