"""What the page faults after a fork go to: whatever forks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from perfdoctor.attribution.share import Share, Shares, scaled
from perfdoctor.attribution.storage_causes import purpose
from perfdoctor.causes import PYTHON_OVERHEAD, WORKER_STARTUP
from perfdoctor.recording.schema import CHILDREN_FAULTS
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.copied_pages import CopiedPages, any_alive
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.stand_ins import ENOUGH, drawn
from perfdoctor.timeline.threads import ThreadSeries


@dataclass(frozen=True)
class Forks:
    """That a trainer forks processes of one kind, and what it spends on the pages that it shares with them.

    Attributes:
        pages: the faults that it takes for them.
        cause: what that counts for.
        line: of the job's own code, where it forks; "" if not seen.
    """

    pages: CopiedPages
    cause: str
    line: str


def read_forks(job: JobTimeline, trainer: Process) -> tuple[Forks, ...]:
    """Loader workers first, then all others that a trainer forks; none where faults after forks cost it nothing."""
    return tuple(filter(lambda forks: forks.pages.per_fork > 0, _forks(job, trainer)))


def after_forks(shares: Shares, several: Iterable[Forks], time_ns: int, computed: Container[str]) -> Shares:
    """Gives what a running thread computes to whatever forks, as far as it goes into pages shared with a child.

    Args:
        shares: of an instant at which it runs.
        several: what it forks.
        time_ns: the instant.
        computed: causes of what it computes; others are for time in which it does not.
    """
    for forks in several:
        part = forks.pages.part(time_ns)
        work = sum(share.weight for share in shares if share.cause in computed)
        if part * work:
            left = (scaled([share], 1 - part) if share.cause in computed else [share] for share in shares)
            shares = [*chain.from_iterable(left), Share(forks.cause, part * work, line=forks.line, copying=True)]
    return shares


def _forks(job: JobTimeline, trainer: Process) -> Iterator[Forks]:
    main, seen = job.threads.main(trainer.pid), job.recording.processes
    children = [one for one in job.processes.by_pid.values() if one.parent_pid == trainer.pid and seen[one.pid].forked]
    if main is None:
        return
    for workers in (True, False):
        some = [child for child in children if (child.role == "worker") == workers]
        unseen_ns = [] if workers else _ended_unseen(job, main, children)
        pages = CopiedPages(main, job.code.of(trainer.pid), some, job.minor_fault_s, unseen_ns)
        times = [*(child.started_ns for child in some), *unseen_ns]
        locations = [job.observe(trainer, time).location for time in drawn(times, ENOUGH)]
        yield Forks(pages, *_whatever_forks(locations, workers=workers))


def _ended_unseen(job: JobTimeline, main: ThreadSeries, children: Sequence[Process]) -> list[int]:
    """The last samples of a trainer before children had ended that lived too short to be seen."""
    counter = job.counters.get(f"pid:{main.pid}", CHILDREN_FAULTS)
    if counter is None:
        return []
    grown_ns = counter.times_ns[1:][np.diff(counter.values) > 0]
    sampled_ns = main.times_ns[np.maximum(np.searchsorted(main.times_ns, grown_ns) - 1, 0)]
    unseen: list[int] = sampled_ns[~any_alive(children, sampled_ns)].tolist()
    return unseen


def _whatever_forks(locations: list[CodeLocation], *, workers: bool) -> tuple[str, str]:
    """The cause and the line at which a process was seen most often when it forked."""
    starts = [location for location in locations if location.detail == "loader start"]
    chosen = starts if workers and starts else locations
    found = Counter((WORKER_STARTUP if workers else purpose(location), location.line) for location in chosen)
    return max(found, key=lambda place: found[place], default=(PYTHON_OVERHEAD, ""))
