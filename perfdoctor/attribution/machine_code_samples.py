"""Samples of machine code while a main thread trains, and which of them certainly belong where in the job's code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfdoctor.attribution.mix_of_lines import CodeOfLines
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.symbols import DRIVERS, CodeKind
from perfdoctor.metrics.by_function import by_owner, owner_of
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation, is_beside
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.stand_ins import ENOUGH, drawn
from perfdoctor.timeline.threads import ThreadState

_OVERHEAD, _ARITHMETIC = ("interpreter", "dispatch", "check", "library"), ("kernel",)
# The same of the host of a GPU: the job's own code, and what gives the GPU work.
_OWN, _LAUNCHING = ("interpreter", "library"), ("dispatch", *DRIVERS)
# Kinds of code that say something of the host of a GPU only, and as what they count elsewhere.
_ELSEWHERE: Mapping[CodeKind, CodeKind] = {
    **dict.fromkeys((*DRIVERS, "clock"), "other"), "copy": "kernel", "yield": "spin"
}  # fmt: skip
# As a thread is while its machine code is sampled.
RUNNING = ThreadState("R", None, "", 1.0, 0.0)


def is_blurred(job: JobTimeline, pid: int) -> bool:
    """Whether steps are too short to know the phase of one sample, and nobody marked their phases."""
    return pid not in job.steps and job.locator.changes_per_s(pid) > thresholds.BLURRED_STACKS_PER_S


def samples_of_training(job: JobTimeline, pid: int) -> CodeSamples:
    """The samples of a main thread's machine code while it trained, of the kinds that they are for such a job."""
    begin, end = job.training_span(job.processes.by_pid[pid])
    samples = job.code.of(pid).within(begin, end)
    elsewhere = {} if job.gpus.used_by(pid) else _ELSEWHERE
    kinds = [elsewhere.get(kind, kind) for kind in samples.kinds.tolist()]
    return replace(samples, kinds=np.array(kinds, dtype=object))


def computes_beside(job: JobTimeline, pid: int) -> bool:
    """Whether most of what a main thread runs beside the model's passes is torch's arithmetic."""
    found = (kind for kind, location in certain_code(job, pid) if is_beside(location))
    return _are_most([kind in ("kernel", "check", "spin") for kind in found])


def certain_code(job: JobTimeline, pid: int) -> Iterator[tuple[CodeKind, CodeLocation]]:
    """A main thread's samples while it trains of which it is certain where they belong, with their locations."""
    return ((kind, location) for kind, _, location in located_code(job, pid))


def located_code(job: JobTimeline, pid: int) -> Iterator[tuple[CodeKind, bool, CodeLocation]]:
    """The same, and whether each is of matrix products and the like.

    Of steps with short phases that are the ones which were taken when a stack was; of a long recording, some stand for
    all.
    """
    reach_ns = thresholds.CERTAIN_CODE_S * NS_PER_S if is_blurred(job, pid) else math.inf
    code = samples_of_training(job, pid)
    samples = zip(code.times_ns.tolist(), code.kinds.tolist(), code.multiply.tolist(), strict=True)
    for time_ns, kind, multiplies in drawn(list(samples), ENOUGH):
        if job.locator.distance_ns(pid, time_ns) <= reach_ns:
            yield kind, multiplies, job.locator.locate(pid, time_ns, RUNNING, in_c=kind != "interpreter")


def code_of_lines(certain: Iterable[tuple[CodeKind, CodeLocation]], *, on_gpu: bool) -> CodeOfLines:
    """What certainly ran at lines of the job's own (``certain_code``)."""
    of_overhead, of_operators = (_OWN, _LAUNCHING) if on_gpu else (_OVERHEAD, _ARITHMETIC)
    overhead, operators = Amounts[str](), Amounts[str]()
    for kind, location in certain:
        if kind in of_overhead:
            overhead[location.line] += 1
        elif kind in of_operators:
            operators[location.line] += 1
    return CodeOfLines(overhead, operators)


def functions_outside_torch(job: JobTimeline, certain: Iterable[tuple[CodeKind, CodeLocation]]) -> dict[str, float]:
    """The job's own functions of which most code that runs is not torch's nor called by torch, and how much of it.

    Python's interpreter also runs torch's own modules; those are innermost then.

    Args:
        job: the job.
        certain: what certainly ran in them (``certain_code``).
    """
    under = by_owner(job.stacks.below_lines)
    seen: dict[str, list[bool]] = {}
    for kind, location in certain:
        if location.line:
            seen.setdefault(owner_of(location.line), []).append(kind in ("library", "interpreter"))
    return {
        function: sum(found) / len(found)
        for function, found in seen.items()
        if _are_most(found) and under.get(function, Amounts()).fractions().get("torch", 0.0) < thresholds.MOSTLY
    }


def _are_most(found: Sequence[bool]) -> bool:
    """Whether most of some samples are of a kind, of as many as can say so."""
    return len(found) >= thresholds.CERTAIN_CODE_SAMPLES and sum(found) >= thresholds.MOSTLY * len(found)
