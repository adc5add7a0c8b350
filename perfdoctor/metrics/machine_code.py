"""What machine code the trainers' main threads ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.schema import CodeSample
from perfdoctor.timeline.job import JobTimeline


class SeenCode(NamedTuple):
    """A function of a file, and how often a thread was seen in it.

    Attributes:
        image: base name of the file, as in ``CodeSample``.
        symbol: mangled name, as in ``CodeSample``.
        times: samples.
    """

    image: str
    symbol: str
    times: int


def code_of_trainers(job: JobTimeline) -> list[SeenCode]:
    """The functions that the main threads of all trainers were seen in."""
    mains = [job.threads.main(trainer.pid) for trainer in job.processes.trainers]
    tids = {main.tid for main in mains if main is not None}
    named = job.recording.symbols
    found: Counter[tuple[str, str]] = Counter()
    columns = job.recording.columns(CodeSample, "tid", "image", "offset", "symbol")
    for (tid, image, offset, symbol), times in Counter(zip(*columns, strict=True)).items():
        if tid in tids:
            found[image, symbol or named.get((image, offset), "")] += times
    return [SeenCode(image, symbol, times) for (image, symbol), times in found.items()]


def part_of(code: Collection[SeenCode], belongs: Callable[[SeenCode], bool]) -> float | None:
    """The part of all samples that belongs to something; None where too few were taken."""
    whole = sum(one.times for one in code)
    return sum(one.times for one in code if belongs(one)) / whole if whole >= thresholds.CODE_SAMPLES else None
