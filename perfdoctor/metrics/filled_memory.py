"""How much of the time goes into memory that is filled with one number, and where.

A part of a tensor that is taken by an index has a gradient of the whole tensor's size, and so has a table of which some
rows are looked up: zeros but for that part, and the gradients of all parts are added up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.libraries import CLEARS
from perfdoctor.knowledge.symbols import adds, fills
from perfdoctor.metrics.machine_code import SeenCode, part_of
from perfdoctor.metrics.own_loops import in_loop_of_model
from perfdoctor.recording.own_source import lines_of
from perfdoctor.recording.schema import CodeSample
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import place_of
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.stand_ins import ENOUGH, drawn

# The zeros are written once, and read and written again where they are added to what there is: so many times as long.
_SUMS_PER_FILL = 3


class FilledMemory(NamedTuple):
    """What the trainers' main threads fill with one number.

    Attributes:
        gradients: the part of their samples in which gradients of zeros are made and added up.
        elsewhere: the part in which memory is filled outside of backward passes and updates.
        line: of the job's own, that most of the latter is done at; "" where none is known.
        cleared: the part in which gradients are set to zero between steps, and the next ones added to those.
    """

    gradients: float
    elsewhere: float
    line: str
    cleared: float = 0.0


def filled_memory(job: JobTimeline, code: Collection[SeenCode]) -> FilledMemory | None:
    """What is filled, by machine code; None where that is next to nothing, or too little was seen.

    Args:
        job: whose.
        code: what its trainers' main threads ran.
    """
    filling = part_of(code, lambda one: fills(one.symbol))
    return None if filling is None or filling < thresholds.FILLING else _by_place(job)


def _by_place(job: JobTimeline) -> FilledMemory:
    by_tid = {main.tid: one for one in job.processes.trainers if (main := job.threads.main(one.pid)) is not None}
    named = job.recording.symbols
    columns = job.recording.columns(CodeSample, "time_ns", "tid", "image", "offset", "symbol")
    whole, found = 0, []
    for time_ns, tid, image, offset, symbol in zip(*columns, strict=True):
        if tid in by_tid:
            whole += 1
            name = symbol or named.get((image, offset), "")
            if (filling := fills(name)) or adds(name):
                found.append((time_ns, tid, filling))
    zeros = sums = elsewhere = others = 0.0
    lines, some = Amounts[str](), drawn(found, ENOUGH)
    part = len(found) / len(some) / whole
    for time_ns, tid, filling in some:
        location = job.observe(by_tid[tid], time_ns).location
        if location.phase == "backward":
            zeros, sums = zeros + part * filling, sums + part * (not filling)
        elif filling and location.phase == "optimizer":
            others += part
        elif filling:
            elsewhere += part
            lines[location.line] += 1
    filled = zeros + elsewhere + others
    if _clearing(job) >= thresholds.MOSTLY * filled:  # the steps are short, and samples were located beside it
        return FilledMemory(0.0, 0.0, "", filled + min(sums, _SUMS_PER_FILL * filled))
    gradients = zeros + min(sums, _SUMS_PER_FILL * zeros)
    return FilledMemory(gradients, elsewhere, max(lines, key=lines.__getitem__, default=""))


def _clearing(job: JobTimeline) -> float:
    """The part of the trainers' time in calls that clear gradients: that they are dropped takes next to none."""
    spent = job.stacks.spent_ns([one.pid for one in job.processes.trainers])
    calls = (amount for number, amount in spent.items() if any(map(CLEARS.matches, job.stacks.frames[number])))
    return sum(calls) / spent.total if spent.total else 0.0


def filled_at(job: JobTimeline, filled: FilledMemory | None) -> Mapping[str, str]:
    """The settings that say where memory is filled, and where parts are taken whose gradients are zeros mostly."""
    if filled is None:
        return {}
    places = {"filled_at": filled.line, "indexed_at": _indexed_at(job)}
    return {name: place for name, place in places.items() if place}


def _indexed_at(job: JobTimeline) -> str:
    """The line in a loop below the model's call that most of the forward pass is in; "" where none was seen there."""
    in_loops, seen = lines_of(job.source_loops), Amounts[str]()
    for number, amount in job.stacks.spent_ns([one.pid for one in job.processes.trainers]).items():
        if job.stacks.locations[number].phase == "forward":
            frames = job.stacks.frames[number]
            for depth, frame in enumerate(frames):
                if in_loop_of_model(frames, depth, in_loops):
                    seen[place_of(frame)] += amount
    return max(seen, key=seen.__getitem__, default="")
