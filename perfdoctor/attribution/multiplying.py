"""How much of the CPU's arithmetic multiplies, and which of the job's functions go over whole tensors instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from perfdoctor.attribution.machine_code_samples import is_blurred, located_code, samples_of_training
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.symbols import CodeKind
from perfdoctor.metrics.arithmetic import is_recurrent
from perfdoctor.metrics.by_function import by_function, owner_of
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.job import JobTimeline

# What counts as arithmetic, that of checks included.
_ARITHMETIC: tuple[CodeKind, ...] = ("kernel", "check")
# Phases in which the job's own lines compute what they say.
_WRITTEN = ("forward", "loss", "other")
_TOP_LEVEL = " <module>"
# And those by which the function with the loop that trains is known: what it calls is others' code.
_OF_LOOP = ("backward", "optimizer")
_Located = tuple[CodeKind, bool, CodeLocation]  # a sample, as ``located_code`` has it


class Multiplying(NamedTuple):
    """What the main threads of trainers compute.

    Attributes:
        part: of their arithmetic that is matrix products, convolutions or FFTs.
        others: functions of the job's own that compute other things, and multiply little; ``("file.py:12 function",
            fraction)``, with the hottest line and what the function computes so, in parts of the wall time.
    """

    part: float
    others: tuple[tuple[str, float], ...]


def find_multiplying(job: JobTimeline) -> Multiplying | None:
    """What a job's trainers compute on the CPU; None where too little of it was seen, or they compute on a GPU."""
    pids = [trainer.pid for trainer in job.processes.trainers]
    if any(map(job.gpus.used_by, pids)):
        return None
    code = {pid: [*located_code(job, pid)] for pid in pids}
    arithmetic = [multiplies for pid in pids for multiplies in _arithmetic(job, pid, code[pid])]
    if len(arithmetic) < thresholds.CODE_SAMPLES:
        return None
    parts = _parts_of_others(one for of_trainer in code.values() for one in of_trainer)
    spent, lines = job.stacks.spent_ns(pids), Amounts[str]()
    for number, amount in spent.items():
        location = job.stacks.locations[number]
        whole = any(map(is_recurrent, job.stacks.frames[number]))  # one operation already, as torch has it
        if _is_written(location) and owner_of(location.line) in parts and not whole:
            lines[location.line] += amount * parts[owner_of(location.line)] / spent.total
    others = tuple((line, part * lines.total) for line, part in by_function(lines))
    return Multiplying(sum(arithmetic) / len(arithmetic), others)


def _arithmetic(job: JobTimeline, pid: int, located: Sequence[_Located]) -> Iterable[bool]:
    """Whether each sample of a trainer's arithmetic multiplies; of preparing batches none, where that is known."""
    if is_blurred(job, pid):
        code = samples_of_training(job, pid)
        return (bool(one) for one in code.multiply[np.isin(code.kinds, _ARITHMETIC)])
    steps = (*_WRITTEN, *_OF_LOOP)
    return (multiplies for kind, multiplies, at in located if kind in _ARITHMETIC and at.phase in steps)


def _parts_of_others(code: Iterable[_Located]) -> dict[str, float]:
    """Of functions in which arithmetic multiplies little, the part of what runs there that is other arithmetic."""
    ran, products, others, loops = Amounts[str](), Amounts[str](), Amounts[str](), set()
    for kind, multiplies, location in code:
        owner = owner_of(location.line)
        if location.phase in _OF_LOOP:
            loops.add(owner)
        elif _is_written(location):
            ran[owner] += 1
            if kind in _ARITHMETIC:
                (products if multiplies else others)[owner] += 1
    return {
        owner: amount / ran[owner]
        for owner, amount in others.items()
        if owner not in loops
        and amount >= thresholds.CERTAIN_CODE_SAMPLES
        and products[owner] < thresholds.MULTIPLIES_LITTLE * (products[owner] + amount)
    }


def _is_written(location: CodeLocation) -> bool:
    """Whether what runs there is what a line of a function says; a backward pass is at the line that asks for it."""
    in_function = bool(location.line) and not location.line.endswith(_TOP_LEVEL)
    return in_function and location.phase in _WRITTEN and not location.in_evaluation
