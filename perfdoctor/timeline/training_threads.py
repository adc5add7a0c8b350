"""Which thread of a process trains: its first one, or another, as Ray Train has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.schema import PythonThread, ThreadSeen
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.stacks import Stacks


def training_threads(
    stacks: Stacks,
    python_threads: Iterable[PythonThread],
    code: CodeSamples,
    holders: Iterable[int | None],
    threads: Mapping[int, ThreadSeen],
) -> dict[int, int]:
    """By process, the thread that trains where that is not its first one.

    Python's identifiers, in which stacks speak, are read of a few processes only; of others machine code tells it.

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
