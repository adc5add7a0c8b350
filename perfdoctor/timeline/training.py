"""Which thread of a process trains, and from when to when: before and after that, its job does other things.

It is the first thread, or another, as Ray Train has it. A job imports, waits for its other ranks to come, builds its
model and reads its lists before it trains, and takes itself apart afterwards. Whoever watches meanwhile sees Python,
the garbage collector and the disk, and none of it is in a training step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, is_import
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import PythonThread, ThreadSeen
from perfdoctor.timeline.code_location import TRAINING_PHASES, CodeLocation, awaits_ranks_to_come
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.stacks import STACK_REACH_NS, Stacks, StackSeries


def training_threads(
    stacks: Stacks,
    python_threads: Iterable[PythonThread],
    code: CodeSamples,
    holders: Iterable[int | None],
    threads: Mapping[int, ThreadSeen],
) -> dict[int, int]:
    """By process, the thread that trains where that is not its first one.

    Python's identifiers, in which stacks speak, are read of a few processes only; of others machine code shows it.

    Args:
        stacks: what was seen of the code that threads are in.
        python_threads: those of which the identifier is known.
        code: machine code that was sampled.
        holders: who held the GIL, sample by sample.
        threads: all threads.
    """
    tids = {(thread.pid, thread.ident): thread.tid for thread in python_threads}
    mains = [one for one in stacks.series if one.is_main]
    by_stack = {one.pid: tid for one in mains if (tid := tids.get((one.pid, one.ident), one.pid)) != one.pid}
    in_loop = {one.pid for one in mains if one.pid not in by_stack and not one.took_over and stacks.is_in_loop(one)}
    by_code = _giving_work(code, holders, threads)
    return {pid: tid for pid, tid in by_code.items() if pid not in in_loop} | by_stack


def _giving_work(code: CodeSamples, holders: Iterable[int | None], threads: Mapping[int, ThreadSeen]) -> dict[int, int]:
    """By process, the thread that calls PyTorch's operators where the first one never does.

    So does autograd's, which seldom takes the GIL.
    """
    calls, held = Counter(code.of_kind("dispatch").tids.tolist()), Counter(holders)
    found: dict[int, int] = {}
    for tid, count in calls.items():
        pid = threads[tid].pid if tid in threads else tid
        if count < thresholds.CODE_SAMPLES or calls[pid]:
            continue
        if pid not in found or held[tid] > held[found[pid]]:
            found[pid] = tid
    return {pid: tid for pid, tid in found.items() if held[tid]}


# A job that waits for its first batch, or saves its last state, has begun and not yet ended.
_OF_TRAINING = TRAINING_PHASES | {"data", "transfer", "saving", "logging"}


def training_span(
    series: StackSeries,
    stacks: Sequence[tuple[Frame, ...]],
    locations: Sequence[CodeLocation],
    span: tuple[int, int],
    *,
    started_ns: int,
    ended: bool,
) -> tuple[int, int]:
    """The part of the watched time in which a process trained, in ns; empty where it had not begun.

    Args:
        series: the stacks of its main thread.
        stacks: the distinct ones, outermost call first.
        locations: of each.
        span: from when to when the job was watched.
        started_ns: when the process was started; one that is older than a minute has begun.
        ended: whether it has ended by now.
    """
    start, end = span
    entries = list(series.entries())
    training = [
        (at, at + lasted)
        for at, lasted, number in entries
        if locations[number].phase in _OF_TRAINING and not _comes_before(stacks[number])
    ]
    is_young = start - started_ns < thresholds.YOUNG_S * NS_PER_S
    if not training:
        # Whoever ends so soon has failed at its start, or was no training.
        before = is_young and (ended or any(_comes_before(stacks[number]) for _, _, number in entries))
        return (end, end) if before or _meets_at_first(entries, stacks) else span
    first, last = training[0][0], training[-1][1]
    # What was seen of the start, not what is seen at all: sampling stacks begins a little later than the watching.
    if (is_young or _meets_at_first(entries, stacks)) and first - entries[0][0] > STACK_REACH_NS:
        start = first
    if ended and end - last > STACK_REACH_NS:
        end = last
    return start, end


def _comes_before(stack: Sequence[Frame]) -> bool:
    return is_import(stack) or awaits_ranks_to_come(stack)


def met_ns(series: StackSeries, stacks: Sequence[tuple[Frame, ...]], span: tuple[int, int]) -> int:
    """Until when a rank waited for the others to come, in ns: until then none of them trains, whatever it does.

    Args:
        series: the stacks of its main thread.
        stacks: the distinct ones, outermost call first.
        span: from when to when the job was watched; its begin where the rank was not seen to wait at first.
    """
    entries = list(series.entries())
    if not _meets_at_first(entries, stacks):
        return span[0]
    return next((at for at, _, number in entries if not awaits_ranks_to_come(stacks[number])), span[1])


def _meets_at_first(entries: Sequence[tuple[int, int, int]], stacks: Sequence[tuple[Frame, ...]]) -> bool:
    """Whether the first that was seen is the wait for other ranks, which may be a long one: then nothing has begun."""
    return bool(entries) and awaits_ranks_to_come(stacks[entries[0][2]])
