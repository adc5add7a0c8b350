"""Whether a rank waits for its GPU, and the GPU does what it does in a collective that does not end.

A host that waits for its GPU spins in the driver, and seems to work. A job that goes on does so as well, for most of
its time. What distinguishes a hang is that nothing else is seen, not once: one stack, code of the driver only, a GPU
that is busy at the power of a collective that waits, and links that carry nothing. Built from published facts, and
never tried on a GPU.
"""

from __future__ import annotations

from bisect import bisect_left

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.symbols import DRIVERS
from perfdoctor.stuck.standing import Span
from perfdoctor.timeline.job import JobTimeline

_WAITING = (*DRIVERS, "clock")
_LINKS = tuple(f"{link}_{way}_bytes_per_second" for link in ("pcie", "nvlink") for way in ("received", "sent"))


def waits_for_gpu(job: JobTimeline, pid: int, span: Span) -> bool:
    """Whether a rank was in one wait for its GPU for all of a span, and the GPU seems to wait for other ranks.

    Args:
        job: the job.
        pid: the rank.
        span: from when to when, in ns.
    """
    gpus = job.gpus.of(pid) if job.gpus.used_by(pid) else ()
    return (
        job.processes.world_size > 1
        and bool(gpus)
        and _one_stack(job, pid, span)
        and _only_in_driver(job, pid, span)
        and all(_as_in_collective(job, gpu, span) for gpu in gpus)
    )


def _one_stack(job: JobTimeline, pid: int, span: Span) -> bool:
    series = job.stacks.of_main(pid)
    if series is None:
        return False
    seen = {number for start, lasted, number in series.entries() if start + lasted > span[0] and start < span[1]}
    return len({job.stacks.frames[number] for number in seen}) == 1


def _only_in_driver(job: JobTimeline, pid: int, span: Span) -> bool:
    """Whether the driver's code was seen often enough, and next to nothing else."""
    kinds = job.code.of(pid).within(span[0], span[1] - 1).kinds.tolist()
    waiting = sum(kind in _WAITING for kind in kinds)
    return len(kinds) >= thresholds.POLLS and waiting >= thresholds.SAME_PLACE * len(kinds)


def _as_in_collective(job: JobTimeline, gpu: str, span: Span) -> bool:
    """Whether a GPU was busy all the time, at low power, and nothing went over its links."""
    busy, power = (_values(job, gpu, name, span) for name in ("busy_fraction", "power_watts"))
    limits = _values(job, gpu, "power_limit_watts", job.span)
    if not (busy and power and limits) or min(busy) < thresholds.BUSY_IN_HANG:
        return False
    carried = [value for name in _LINKS for value in _values(job, gpu, name, span)]
    return max(power) <= thresholds.POWER_IN_HANG * max(limits) and max(carried, default=0) < thresholds.STILL_LINK


def _values(job: JobTimeline, subject: str, name: str, span: Span) -> list[float]:
    times, values = job.recording.series.get((subject, name), ([], []))
    return values[bisect_left(times, span[0]) : bisect_left(times, span[1])]
