"""What reports draw of a recording: who did what over time, where in the code, and how long steps took."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from perfdoctor.analysis.code_tree import code_tree
from perfdoctor.analysis.source import read_source
from perfdoctor.analysis.step_lanes import step_lanes, stretches
from perfdoctor.attribution.account import Account, Sampled
from perfdoctor.attribution.attribute import BLOCK_NS
from perfdoctor.attribution.passes import settled_samples
from perfdoctor.attribution.storage_causes import read_writing
from perfdoctor.attribution.suppliers import SupplierClassifier
from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.messages import Text, say
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.results.activity import (
    TRAINER,
    WORKER,
    Activity,
    CodeTree,
    HotLine,
    Lane,
    StepPart,
    StepParts,
    StepTimes,
    Track,
)
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.long_steps import longest_ordinary
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.steps import Step, Steps

# As many bins as can be distinguished on a wide screen, and for all tracks together what a page has room for.
_MOST_BINS, _MOST_CELLS = 240, 9_600
_PHASE_BINS = 480  # of marks, which are exact
_SAMPLES_PER_BIN = 2  # fewer say little of a bin
_OTHER = "other"  # the phase of what was neither marked nor seen in one
# A sample of a worker costs some 0.1 ms: so many of one, and of all of them together.
_WORKER_SAMPLES, _ALL_WORKER_SAMPLES = 1_500, 8_000
_WORKER_TRACKS = 16  # judgement: what a page has room for beside the rest
# So many lines are named, of those that take a hundredth of the time and more.
_HOT_LINES, _LEAST_LINE = 12, 0.01
# Steps of which the times are kept; of more, the longest of neighbours stands for them.
_STEPS_KEPT = 2_000

_GAPS = 2  # fewer are no rhythm
_REGULAR = 0.9  # of the gaps

# A process and what it did at each of its samples.
Found = tuple[Process, list[Sampled]]


def read_activity(job: JobTimeline, accounts: Sequence[Account], straggler: int | None) -> Activity:
    """All of it.

    Args:
        job: the job.
        accounts: of its trainers.
        straggler: the rank of which the code is drawn; None for the first one: ranks mostly run the same.
    """
    trainers = [(account.trainer, settled_samples(account, job.span[0], BLOCK_NS)) for account in accounts]
    suppliers = {one.trainer.pid: SupplierClassifier(job, read_writing(job, one.trainer)) for one in accounts}
    workers = [(suppliers[one.trainer.pid], worker) for one in accounts for worker in _workers(job, one)]
    most = min(_WORKER_SAMPLES, _ALL_WORKER_SAMPLES // max(1, len(workers)))
    worked = [(worker, _of_worker(of, worker, most)) for of, worker in workers]
    seen = [found for found in worked if found[1]]
    shown = _longest_seen(seen)
    until = max((samples[-1].time_ns for _, samples in (*trainers, *seen) if samples), default=job.span[1])
    shares = _line_shares(accounts)
    drawn = [(TRAINER, *found) for found in trainers if found[1]] + [(WORKER, *found) for found in shown]
    return Activity(
        watched_s=(until - job.span[0]) / NS_PER_S,
        tracks=tuple(_track(job, *found, until=until, of=len(drawn)) for found in drawn),
        phases=tuple(_phases(job, trainers, straggler, until)),
        code=tuple(_code(job, trainers, seen, straggler)),
        lines=_hot_lines(shares),
        source=read_source(job, shares),
        steps=tuple(_steps_of(job, trainers, straggler, suppliers)),
        workers_left_out=len(seen) - len(shown),
    )


def not_drawn(activity: Activity) -> Iterator[Text]:
    """What was not seen of a recorded job, and why."""
    if not activity.tracks:
        yield say("activity.no_tracks")
    if not activity.code:
        yield say("activity.no_code")
    if activity.tracks and not activity.steps:
        yield say("activity.no_steps")
    if activity.workers_left_out:
        yield say("activity.workers_left_out", count=activity.workers_left_out)


def _code(job: JobTimeline, trainers: list[Found], workers: list[Found], straggler: int | None) -> Iterator[CodeTree]:
    """The calls of one trainer, and of the worker that works most."""
    trainer = next((found for found in trainers if found[0].rank == straggler), None) or next(iter(trainers), None)
    busiest = max(workers, key=lambda found: _busy(found[1]), default=None)
    for role, found in ((TRAINER, trainer), (WORKER, busiest)):
        if found is not None:
            tree = code_tree(job, found[0], role, found[1])
            if tree.calls:
                yield tree


def _workers(job: JobTimeline, account: Account) -> list[Process]:
    return sorted(job.processes.workers_of(account.trainer.pid), key=lambda worker: (worker.started_ns, worker.pid))


def _longest_seen(workers: list[Found]) -> list[Found]:
    """Those that can be drawn, in their own order."""
    longest = sorted(workers, key=lambda found: -len(found[1]))[:_WORKER_TRACKS]
    return [found for found in workers if found in longest]


def _busy(samples: Sequence[Sampled]) -> float:
    """Seconds in which a worker works."""
    return sum(amount for sample in samples for cause, amount in sample.causes.items() if cause)


def _of_worker(suppliers: SupplierClassifier, worker: Process, most: int) -> list[Sampled]:
    """What a worker does at its samples, "" where it idles; at drawn ones where there are more."""
    times = suppliers.job.threads.main_times(worker.pid, most=most)
    if len(times) < 2:
        return []
    edges = np.concatenate([times[:1], (np.array(times[1:]) + times[:-1]) / 2, times[-1:]])
    found = []
    for time_ns, seconds in zip(times, (np.diff(edges) / NS_PER_S).tolist(), strict=True):
        shares = suppliers.shares(worker, time_ns)
        causes = Amounts.summed({share.cause: share.weight * seconds} for share in shares)
        causes[""] += seconds - causes.total
        found.append(Sampled(time_ns, causes))
    return found


def _track(job: JobTimeline, role: str, process: Process, samples: list[Sampled], *, until: int, of: int) -> Track:
    """One of so many tracks, which all end at the same instant."""
    bins = max(1, min(_MOST_BINS, _MOST_CELLS // of, len(samples) // _SAMPLES_PER_BIN))
    cells = _cells(((sample.time_ns, sample.causes) for sample in samples), (job.span[0], until), bins)
    return _drawn(job, role, process, cells, until)


def _cells(amounts: Iterable[tuple[int, Amounts[str]]], span: tuple[int, int], bins: int) -> list[Amounts[str]]:
    """What lies in each of so many bins of equal length."""
    start, end = span
    cells: list[Amounts[str]] = [Amounts() for _ in range(bins)]
    for time_ns, parts in amounts:
        cell = cells[min(bins - 1, (time_ns - start) * bins // max(1, end - start))]
        for name, amount in parts.items():
            cell[name] += amount
    return cells


def _drawn(job: JobTimeline, role: str, process: Process, cells: Sequence[Amounts[str]], until: int) -> Track:
    parts = [cell.fractions() for cell in cells]
    return Track(
        role,
        job.processes.rank_of(process),
        process.pid,
        (until - job.span[0]) / NS_PER_S / len(cells),
        tuple(bool(part) for part in parts),
        {name: tuple(part.get(name, 0.0) for part in parts) for name in Amounts.summed(cells).fractions() if name},
    )


def _phases(job: JobTimeline, trainers: list[Found], straggler: int | None, until: int) -> Iterator[Track]:
    """The phases of the first trainer and of the straggler: marks are exact, and finer than samples."""
    for number, (trainer, samples) in enumerate(trainers):
        if number and trainer.rank != straggler:
            continue
        marked = job.steps.get(trainer.pid)
        if marked is not None and marked.all:
            edges = np.linspace(job.span[0], until, _PHASE_BINS + 1).astype(np.int64)
            spent = marked.spent_between(edges)
            cells = [Amounts({name: float(of[place]) for name, of in spent.items()}) for place in range(_PHASE_BINS)]
            yield _drawn(job, TRAINER, trainer, cells, until)
        elif any(sample.phase not in ("", _OTHER) for sample in samples):
            bins = max(1, min(_MOST_BINS, len(samples) // _SAMPLES_PER_BIN))
            seen = ((sample.time_ns, Amounts({sample.phase: sample.causes.total})) for sample in samples)
            yield _drawn(job, TRAINER, trainer, _cells(seen, (job.span[0], until), bins), until)


def _line_shares(accounts: Sequence[Account]) -> Amounts[tuple[str, str]]:
    """What goes to each line and cause, as fractions of wall time; each rank's time counts alike."""
    watched = [account.seconds or 1.0 for account in accounts]
    return Amounts.summed(
        {(line, cause): amount / seconds / len(accounts) for line, amount in lines.items()}
        for account, seconds in zip(accounts, watched, strict=True)
        for cause, lines in account.lines.items()
    )


def _hot_lines(shares: Amounts[tuple[str, str]]) -> tuple[HotLine, ...]:
    """The lines that cost most."""
    first = sorted(shares.items(), key=lambda item: -item[1])[:_HOT_LINES]
    return tuple(HotLine(line, cause, share) for (line, cause), share in first if share >= _LEAST_LINE)


def _steps_of(
    job: JobTimeline, trainers: list[Found], straggler: int | None, suppliers: Mapping[int, SupplierClassifier]
) -> Iterator[StepTimes]:
    """The steps of each rank; of the first one, and of the straggler, with what workers and GPUs did in two of them."""
    found = [(trainer, samples, job.timed_steps(trainer.pid)) for trainer, samples in trainers]
    timed = [(trainer, samples, steps) for trainer, samples, steps in found if steps is not None]
    for number, (trainer, samples, steps) in enumerate(timed):
        times = _step_times(job, trainer.rank or 0, trainer.pid, steps, samples)
        if times.usual.parts and (number == 0 or times.rank == straggler):
            lanes = partial(step_lanes, suppliers[trainer.pid], trainer, steps)
            times = replace(times, usual=_with_lanes(times.usual, lanes))
            times = replace(times, slowest=_with_lanes(times.slowest, lanes))
        yield times


def _with_lanes(parts: StepParts, lanes: Callable[[int], tuple[Lane, ...]]) -> StepParts:
    return replace(parts, lanes=lanes(parts.number - 1))


def _step_times(job: JobTimeline, rank: int, pid: int, steps: Steps, samples: Sequence[Sampled]) -> StepTimes:
    start, lengths = job.span[0], steps.lengths_ns
    order = np.argsort(lengths, kind="stable")
    usual, slowest = int(order[(len(order) - 1) // 2]), int(order[-1])
    kept, limit_ns = _longest_of_neighbours(lengths.tolist()), longest_ordinary(lengths)
    return StepTimes(
        rank,
        tuple((steps.all[number].from_ns - start) / NS_PER_S for number in kept),
        tuple(float(lengths[number]) / NS_PER_S for number in kept),
        limit_ns / NS_PER_S,
        _parts(steps, usual, samples),
        _parts(steps, slowest, samples),
        period(np.flatnonzero(lengths > limit_ns).tolist()),
        passes=job.counts_passes(pid),
    )


def period(numbers: Sequence[int]) -> int | None:
    """After how many steps one of those comes again, within one step; None where that is not nearly always so."""
    gaps = [after - before for before, after in pairwise(numbers)]
    if len(gaps) < _GAPS:
        return None
    often = Counter(gaps)
    shorter = max(often, key=lambda gap: often[gap] + often[gap + 1])
    regular = [gap for gap in gaps if gap in (shorter, shorter + 1)]
    # A step that is long for a reason of its own splits one gap in two.
    return round(sum(regular) / len(regular)) if shorter > 1 and len(regular) >= _REGULAR * len(gaps) else None


def _longest_of_neighbours(lengths: Sequence[int]) -> list[int]:
    """Numbers of the steps that are kept, so that no long one is missing."""
    together = -(-len(lengths) // _STEPS_KEPT)
    return [
        max(range(first, min(first + together, len(lengths))), key=lambda number: lengths[number])
        for first in range(0, len(lengths), together)
    ]


def _parts(steps: Steps, number: int, samples: Sequence[Sampled]) -> StepParts:
    step = steps.all[number]
    parts = (part for found in _parts_of(steps, step) for part in explained(found, step, samples))
    return StepParts(number + 1, (step.end_ns - step.from_ns) / NS_PER_S, tuple(parts))


def explained(part: StepPart, step: Step, samples: Sequence[Sampled]) -> Iterator[StepPart]:
    """A part of a step; where no phase was marked, as what was seen there."""
    start_ns, end_ns = (step.from_ns + round(at * NS_PER_S) for at in (part.start_s, part.start_s + part.length_s))
    within = _between(samples, start_ns, end_ns) if part.phase == _OTHER else ()
    seen = [(sample.time_ns, next(iter(sample.causes.fractions()), "")) for sample in within]
    if not seen:
        yield part
    for one in stretches(seen, (start_ns, end_ns), step):
        yield StepPart(part.phase, one.start_s, one.length_s, "" if one.what == UNATTRIBUTED else one.what)


def _between(samples: Sequence[Sampled], start_ns: int, end_ns: int) -> Sequence[Sampled]:
    first, last = (bisect_left(samples, at, key=lambda sample: sample.time_ns) for at in (start_ns, end_ns))
    return samples[first:last]


def _parts_of(steps: Steps, step: Step) -> Iterator[StepPart]:
    time_ns = step.from_ns
    while time_ns < step.end_ns:
        segment = steps.at(time_ns)
        if segment is None:
            return
        end_ns = min(segment.end_ns, step.end_ns)
        yield StepPart(segment.name, (time_ns - step.from_ns) / NS_PER_S, (end_ns - time_ns) / NS_PER_S)
        time_ns = end_ns
