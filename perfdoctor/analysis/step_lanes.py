"""What loader workers and GPUs did during one step of a trainer, on the one clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from perfdoctor.attribution.suppliers import SupplierClassifier
from perfdoctor.metrics.overlap import device_track
from perfdoctor.recording.clock import seconds
from perfdoctor.results.activity import GPU, WORKER, Lane, LanePart
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.marks import Segment
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.stand_ins import drawn
from perfdoctor.timeline.steps import Step, Steps

# Fewer samples of a step do not show how it went.
_LEAST_SAMPLES = 3
_WORKERS = 8  # of a step that is drawn; judgement: more lanes are not compared by eye
# Steps whose lengths differ by no more than this part are put one upon the other, in so many bins, each with so many
# samples at least and all with so many at most.
_ALIKE, _BINS, _SAMPLES_PER_BIN, _MOST_SAMPLES = 0.25, 16, 8, 800
# Of one worker so many samples are looked for in them.
_TIMES = 10_000


def step_lanes(suppliers: SupplierClassifier, trainer: Process, steps: Steps, number: int) -> tuple[Lane, ...]:
    """The loader workers of a trainer, then its GPUs, during one of its steps.

    Where workers are looked at too rarely for a single step, it is all steps of about its length that are shown, each
    look at its place in its step: as an oscilloscope does whose signal comes again (equivalent-time sampling).

    Args:
        suppliers: of the trainer.
        trainer: whose step it is.
        steps: all that it marked.
        number: which one, from 0.
    """
    job, step = suppliers.job, steps.all[number]
    workers = job.processes.workers_of(trainer.pid)
    present = [one for one in workers if _overlap(one, step) is not None]
    present.sort(key=lambda worker: (worker.started_ns, worker.pid))
    lanes = [_of_worker(suppliers, worker, step) for worker in present[:_WORKERS]]
    if lanes and not any(lane.parts for lane in lanes):
        lanes = [_of_alike(suppliers, workers, steps, number, every_s=lanes[0].every_s)]
    return (*lanes, *_of_gpus(job, trainer, steps, step))


def _overlap(process: Process, step: Step) -> tuple[int, int] | None:
    """From when to when a process was alive in a step."""
    start = max(process.started_ns, step.from_ns)
    end = step.end_ns if process.ended_ns is None else min(process.ended_ns, step.end_ns)
    return (start, end) if end > start else None


def _of_worker(suppliers: SupplierClassifier, worker: Process, step: Step) -> Lane:
    """What a worker did at each sample, which stands for the time around it."""
    times = np.array(suppliers.job.threads.main_times(worker.pid), dtype=np.int64)
    lane, span = Lane(WORKER, str(worker.pid), every_s=_usual_gap(times)), _overlap(worker, step)
    if span is None or lane.every_s is None or seconds(step.end_ns - step.from_ns) < _LEAST_SAMPLES * lane.every_s:
        return lane
    first, last = np.searchsorted(times, span).tolist()
    near = times[max(0, first - 1) : last + 1].tolist()
    samples = [(time_ns, _does(suppliers, worker, time_ns)) for time_ns in near]
    return replace(lane, parts=tuple(stretches(samples, span, step)))


def stretches(samples: Sequence[tuple[int, str]], span: tuple[int, int], step: Step) -> Iterator[LanePart]:
    """What was seen in a stretch of a step: each sample stands for the time around it.

    Args:
        samples: when, and what was seen; some of them may lie around the stretch.
        span: from when to when.
        step: in which it lies.
    """
    if not samples:
        return
    times = np.array([time_ns for time_ns, _ in samples], dtype=np.int64)
    edges = np.clip((times[1:] + times[:-1]) // 2, *span).tolist()
    begins, ends = [span[0], *edges], [*edges, span[1]]
    yield from _joined(zip((what for _, what in samples), begins, ends, strict=True), step)


def _does(suppliers: SupplierClassifier, worker: Process, time_ns: int) -> str:
    """The cause of what a worker does at an instant; "" if it idles."""
    shares = suppliers.shares(worker, time_ns)
    return max(shares, key=lambda share: share.weight).cause if shares else ""


def _of_alike(
    suppliers: SupplierClassifier, workers: Sequence[Process], steps: Steps, number: int, *, every_s: float | None
) -> Lane:
    """What workers did in the mean at each place of all steps of about the same length."""
    step, lengths = steps.all[number], steps.lengths_ns
    alike = [steps.all[one] for one in np.flatnonzero(np.abs(lengths / lengths[number] - 1) <= _ALIKE).tolist()]
    samples = drawn(
        [sample for worker in workers for sample in _samples_in(suppliers.job, worker, alike)], _MOST_SAMPLES
    )
    lane, bins = Lane(WORKER, "", every_s=every_s, steps=len(alike)), min(_BINS, len(samples) // _SAMPLES_PER_BIN)
    if bins < _LEAST_SAMPLES:
        return lane
    found: list[Amounts[str]] = [Amounts() for _ in range(bins)]
    for worker, time_ns, place in samples:
        found[int(place * bins)][_does(suppliers, worker, time_ns)] += 1
    width_s = seconds(step.end_ns - step.from_ns) / bins
    return replace(lane, parts=tuple(_stacked(found, width_s)))


def _samples_in(job: JobTimeline, worker: Process, alike: Sequence[Step]) -> Iterator[tuple[Process, int, float]]:
    """The samples of a worker that lie in some steps, in order, and where: from 0 at the beginning to 1 at the end."""
    begins = np.array([step.from_ns for step in alike], dtype=np.int64)
    ends = np.array([step.end_ns for step in alike], dtype=np.int64)
    times = np.array(job.threads.main_times(worker.pid, most=_TIMES), dtype=np.int64)
    index = np.searchsorted(begins, times, side="right") - 1
    inside = (index >= 0) & (times < ends[index])
    times, index = times[inside], index[inside]
    places = (times - begins[index]) / (ends[index] - begins[index])
    for time_ns, place in zip(times.tolist(), places.tolist(), strict=True):
        yield worker, time_ns, place


def _stacked(bins: Sequence[Amounts[str]], width_s: float) -> Iterator[LanePart]:
    """Fractions of each bin, one cause upon the other, idling on top."""
    order = sorted(Amounts.summed(bins).fractions(), key=lambda cause: not cause)
    for number, amounts in enumerate(bins):
        base, whole = 0.0, amounts.total or 1.0
        for cause in order:
            if amounts[cause]:
                yield LanePart(cause, number * width_s, width_s, amounts[cause] / whole, base)
                base += amounts[cause] / whole


def _usual_gap(times: npt.NDArray[np.int64]) -> float | None:
    """Seconds between two samples, as the median."""
    return seconds(float(np.median(np.diff(times)))) if len(times) > 1 else None


def _joined(spans: Iterable[tuple[str, int, int]], step: Step) -> Iterator[LanePart]:
    """Spans as parts of a step, those that follow each other with the same as one."""
    begins, does, until = step.from_ns, None, step.from_ns
    for what, start, end in spans:
        if what != does:
            if does is not None and until > begins:
                yield _part(does, begins, until, step)
            begins, does = start, what
        until = end
    if does is not None and until > begins:
        yield _part(does, begins, until, step)


def _part(what: str, start_ns: int, end_ns: int, step: Step, fraction: float = 1.0) -> LanePart:
    return LanePart(what, seconds(start_ns - step.from_ns), seconds(end_ns - start_ns), fraction)


def _of_gpus(job: JobTimeline, trainer: Process, steps: Steps, step: Step) -> Iterator[Lane]:
    """The trainer's device as it came through the phases, where it was asked; else how busy its GPUs were."""
    segments, timed = device_track(steps)
    gpus = job.gpus.of(trainer.pid)
    covered = sum(max(0, min(end, step.end_ns) - max(start, step.from_ns)) for start, end in timed)
    if 2 * covered >= step.end_ns - step.from_ns:
        yield Lane(GPU, gpus[0] if len(gpus) == 1 else "", tuple(_phases(segments, step)))
        return
    if job.gpus.used_by(trainer.pid):
        for gpu in gpus or ("",):
            yield _of_readings(job, gpu, step)


def _phases(segments: Iterable[Segment], step: Step) -> Iterator[LanePart]:
    for one in segments:
        start, end = max(one.start_ns, step.from_ns), min(one.end_ns, step.end_ns)
        if end > start:
            yield _part(one.name, start, end, step)


def _of_readings(job: JobTimeline, gpu: str, step: Step) -> Lane:
    """How busy a GPU was; each reading stands for the time since the one before it."""
    read, busy = job.readings.over_time(gpu, "busy_fraction")
    times = np.array(read, dtype=np.int64)
    first = int(np.searchsorted(times, step.from_ns, side="right"))
    last = min(len(times), int(np.searchsorted(times, step.end_ns)) + 1)
    lane = Lane(GPU, gpu, every_s=_usual_gap(times))
    if last - first < _LEAST_SAMPLES:
        return lane
    edges = [step.from_ns, *times[first : last - 1].tolist(), step.end_ns]
    parts = zip(edges[:-1], edges[1:], busy[first:last], strict=True)
    return replace(lane, parts=tuple(_part("", start, end, step, fraction) for start, end, fraction in parts))
