"""`attach` on every host of a job: which job is meant, who of several tasks of a host watches, and the handing on."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perfdoctor.capture.job import find_root
from perfdoctor.capture.target import require_target

if TYPE_CHECKING:
    from perfdoctor.capture.jobs import TrainingJob

# Two searches so far apart that find the same ranks have found all that begin together.
_SEARCH_AGAIN_S = 1.0


class Target(NamedTuple):
    """What is to be watched on this host.

    Attributes:
        pid: a process of the job.
        roots: the tops of its trees.
        ranks: of its trainers here; none where no launcher has set them.
        world: how many ranks it has on all hosts, as far as that is known.
    """

    pid: int
    roots: tuple[int, ...]
    ranks: tuple[int, ...] = ()
    world: int = 0


def is_for_another() -> bool:
    """Whether a launcher has started perfdoctor several times on this host, and another one watches; says so."""
    from perfdoctor.capture.jobs import our_task

    if task := our_task():
        print(f"perfdoctor: task 0 of this host watches the job; this is task {task}.", file=sys.stderr)
    return task > 0


def target_of(arguments: argparse.Namespace) -> Target:
    """What the user wants to be watched.

    Raises:
        PerfDoctorError: there is no such process or job, or there are several jobs and nobody chooses.
    """
    from perfdoctor.capture.jobs import find_jobs, roots_of

    if arguments.pid is None:
        return _of_job(_wait_for_job(arguments.job, arguments.wait))
    require_target(arguments.pid)
    if not arguments.gather:
        return Target(arguments.pid, roots_of(arguments.pid))
    root = find_root(arguments.pid)
    job = next((job for job in find_jobs(0.0).jobs if root in job.roots), None)
    return Target(arguments.pid, (root,)) if job is None else _of_job(job)._replace(pid=arguments.pid)


def _of_job(job: TrainingJob) -> Target:
    return Target(job.pid, job.roots, job.numbers or (), job.world)


def _wait_for_job(name: str | None, wait_s: float | None) -> TrainingJob:
    """The job that is meant; one that begins is waited for until all of its ranks that begin together are there."""
    from perfdoctor.capture.jobs import find_jobs
    from perfdoctor.commands.job_list import choose

    end_s, before = time.monotonic() + (wait_s or 0.0), None
    while True:
        found = find_jobs()
        meant = [job.trainers for job in found.jobs if not name or name in job.names]
        if time.monotonic() >= end_s or (meant and meant == before):
            return choose(found, name or None, alone=name is not None)
        before = meant
        time.sleep(min(_SEARCH_AGAIN_S, max(0.0, end_s - time.monotonic())))


@contextmanager
def gathering(address: str, target: Target, recording: Path) -> Iterator[None]:
    """Copies what is recorded meanwhile to where the recordings of all hosts come together.

    Raises:
        PerfDoctorError: nothing can be written there, which shows before anything is recorded; or the copy fails, and
            the recording is kept here.
    """
    from perfdoctor.capture.gathering import take_place

    place = take_place(address, platform.node(), target.ranks)
    try:
        yield
    except BaseException:
        if not recording.exists() or not recording.stat().st_size:
            place.give_up()
        raise
    place.deliver(recording)
    if target.ranks:
        who = f"rank{'s' if len(target.ranks) > 1 else ''} {', '.join(map(str, target.ranks))} of {target.world}"
    else:
        who = "ranks without numbers"
    print(f"{platform.node()}, {who}: {place.file}")
    if not target.ranks or 0 in target.ranks:
        print(f"  When all hosts are through: perfdoctor analyze {address}")
