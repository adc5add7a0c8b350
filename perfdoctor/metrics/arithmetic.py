"""What the arithmetic is done in: its precision, memory handed out anew in each step, and layers that are recurrent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from statistics import fmean
from typing import NamedTuple

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import PAGE_BYTES
from perfdoctor.knowledge.frames import Frame, package_of
from perfdoctor.knowledge.libraries import CELLS
from perfdoctor.knowledge.symbols import (
    bits,
    is_by_convolution,
    is_compatible,
    is_fft,
    is_without_onednn,
    reduces_by_number,
    unfolds,
)
from perfdoctor.metrics.machine_code import SeenCode, part_of
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.stand_ins import ENOUGH, drawn

# Where files may be mapped, whose pages take faults too.
_FILES = ("data", "saving")


class DoublePrecision(NamedTuple):
    """What the trainers compute in double precision.

    Attributes:
        part: of the arithmetic of known precision.
        unfolding: the part of it that lays windows of convolutions out for BLAS: oneDNN knows no double precision.
    """

    part: float
    unfolding: float


def in_double(code: Iterable[SeenCode]) -> DoublePrecision | None:
    """The trainers' arithmetic in double precision; None where too little was seen."""
    seen: Counter[int | None] = Counter()
    unfolding = 0
    for image, name, count in code:
        width = bits(image, name)
        seen[width] += count
        if width == 64 and unfolds(name):
            unfolding += count
    known = seen[32] + seen[64]
    if known < thresholds.SEEN_STACKS:
        return None
    return DoublePrecision(seen[64] / known, unfolding / max(1, seen[64]))


def without_onednn(code: Collection[SeenCode]) -> float | None:
    """Part of what the trainers' main threads run that is of convolutions in single precision which oneDNN does not do.

    The matrix products below them are not counted. None where too little was seen.
    """
    return part_of(code, lambda one: is_without_onednn(one.symbol) and bits(one.image, one.symbol) != 64)


def has_compatible_blas(code: Collection[SeenCode]) -> bool:
    """Whether MKL gives the same results on all CPUs; a job may ask for that itself, where no variable shows it."""
    return (part_of(code, lambda one: is_compatible(one.symbol)) or 0.0) >= thresholds.REPORTED_PART


def in_recurrent(job: JobTimeline) -> float | None:
    """Part of the trainers' forward passes in layers over whole sequences; None where none was seen."""
    whole = inside = 0.0
    for number, amount_ns in job.stacks.spent_ns([trainer.pid for trainer in job.processes.trainers]).items():
        location = job.stacks.locations[number]
        if location.phase == "forward" and not location.in_evaluation:
            whole += amount_ns
            inside += amount_ns * any(map(is_recurrent, job.stacks.frames[number]))
    return inside / whole if inside else None


def is_recurrent(frame: Frame) -> bool:
    """Whether it is a layer for a whole sequence; Python before 3.11 reports functions without their class."""
    layer, _, method = frame.function.partition(".")
    return method == "forward" and layer in CELLS.values() and package_of(frame.file) == "torch"


def reducing_by_number(code: Collection[SeenCode]) -> float | None:
    """Part of what the trainers' main threads run that sets reductions up for each number; None where little was seen.

    ``norm`` over another dimension than the last one, ``std`` and ``var`` do so. It is a third to a quarter of what
    they take where each number is of few elements: the rest is code that others run as well (measured, torch 2.13).
    """
    return part_of(code, lambda one: reduces_by_number(one.symbol))


def in_long_ffts(code: Collection[SeenCode]) -> float | None:
    """Part of what the trainers' main threads run that is FFTs made out of a convolution; None where little was seen.

    A length with a large prime factor is done so, by FFTs of more than twice the length. Of their code it is known by
    its steps which part is of such ones.
    """
    ffts, steps = (
        part_of(code, lambda one: is_fft(one.symbol)),
        part_of(code, lambda one: is_by_convolution(one.symbol)),
    )
    return None if ffts is None or steps is None else min(ffts, steps / thresholds.STEPS_OF_CONVOLUTION)


def fresh_memory(job: JobTimeline) -> float | None:
    """Part of the trainers' time that faults for fresh memory take, as a mean; None where they were not counted.

    glibc gives large pieces of memory back to the kernel as soon as they are freed, and the kernel clears each page
    that is touched for the first time. A step that needs the same memory again pays for that again.
    """
    parts = [part for one in job.processes.trainers if (part := _fresh_memory(job, one)) is not None]
    return fmean(parts) if parts else None


def _fresh_memory(job: JobTimeline, trainer: Process) -> float | None:
    """The same of one: what its main thread takes faults for, beyond the memory that it keeps."""
    main = job.threads.main(trainer.pid)
    if main is None or not job.minor_fault_s:
        return None
    read = np.flatnonzero(~np.isnan(main.minor_faults))
    if len(read) < 2:
        return None
    times, faults = main.counted_ns[read], np.diff(main.minor_faults[read])
    span_s = float(times[-1] - times[0]) / NS_PER_S
    if span_s < thresholds.SHORTEST_RATE_S:
        return None
    middles = ((times[1:] + times[:-1]) / 2).astype(np.int64)
    some = drawn(np.flatnonzero(faults).tolist(), ENOUGH)
    in_files = [job.observe(trainer, int(middles[number])).location.phase in _FILES for number in some]
    kept = 1 - float(np.average(in_files, weights=faults[some])) if some else 0.0
    taken = kept * float(faults.sum()) - _grown_pages(job, trainer)
    return max(0.0, taken * job.minor_fault_s / span_s)


def _grown_pages(job: JobTimeline, trainer: Process) -> float:
    """By how many pages its memory has grown, each of which took a fault once; 0 where it shrank."""
    size = job.counters.get(f"pid:{trainer.pid}", "rss_bytes")
    return 0.0 if size is None else max(0.0, float(size.values[-1] - size.values[0])) / PAGE_BYTES
