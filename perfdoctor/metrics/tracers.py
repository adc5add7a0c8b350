"""What was left on that Python calls everywhere, a trace function of the job's own or tracemalloc, and other tracers.

A function of the job's own is called at each line or call (``sys.settrace``, ``sys.setprofile``).

What is written in a library calls the job's own functions at a few lines: a layer's ``forward``, a sample's
``__getitem__``, a hook. A trace function is below lines everywhere, and lets nothing of torch's run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, is_own, package_of
from perfdoctor.knowledge.symbols import looks_line_up, traces_memory
from perfdoctor.metrics.machine_code import SeenCode
from perfdoctor.recording.schema import TRACED_BY
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import place_of
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.stacks import Stacks
from perfdoctor.timeline.threads import TRACED


class Tracer(NamedTuple):
    """A trace function.

    Attributes:
        place: its line that was seen most, ``file.py:12 function``.
        part: fraction of the main threads' time below it.
    """

    place: str
    part: float


def tracing_memory(code: Iterable[SeenCode]) -> float | None:
    """Part of what the trainers' main threads run that is tracemalloc's; None where it is off, or has no symbols."""
    whole = traces = lines = 0
    for _, name, count in code:
        whole += count
        traces += count * traces_memory(name)
        lines += count * looks_line_up(name)
    return (traces + lines) / whole if traces and traces >= thresholds.TRACES_MEMORY * whole else None


class Stopped(NamedTuple):
    """What stops the trainers at what they do, as ``strace`` and debuggers do (ptrace(2)).

    Attributes:
        by: the program's name.
        part: fraction of the main threads' time in which they are stopped.
    """

    by: str
    part: float


def stopped_by(job: JobTimeline) -> Stopped | None:
    """The program that traces a trainer, and what that takes; None where none does, or none was stopped."""
    facts, trainers = job.recording.facts, [one.pid for one in job.processes.trainers]
    tracers = [name for pid in trainers if (name := facts.get((f"pid:{pid}", TRACED_BY)))]
    if not tracers:
        return None
    states = [job.threads.main_at(pid, time_ns).state for pid in trainers for time_ns in job.threads.main_times(pid)]
    part = states.count(TRACED) / len(states) if states else 0.0
    return Stopped(tracers[0].partition(" ")[2], part) if part else None


def find_tracer(stacks: Stacks, trainers: Collection[int]) -> Tracer | None:
    """The trace function that takes most of the time; None where there is none.

    Args:
        stacks: the job's.
        trainers: process ids.
    """
    spent = stacks.spent_ns(trainers)
    callers: defaultdict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
    places: defaultdict[tuple[str, str], Amounts[str]] = defaultdict(Amounts)
    lets_run: set[tuple[str, str]] = set()
    for number, amount in spent.items():
        frames = stacks.frames[number]
        for at, (caller, frame) in enumerate(pairwise(frames)):
            if is_own(frame) and not is_own(caller) and not _is_protocol(frame):
                called = frame.file, frame.function
                callers[called].add((caller.file, caller.line))
                if any(package_of(below.file) == "torch" for below in frames[at + 2 :]):
                    lets_run.add(called)
        for frame in {(one.file, one.function): one for one in frames if is_own(one)}.values():
            places[frame.file, frame.function][place_of(frame)] += amount
    found = [one for one, lines in callers.items() if _are_everywhere(lines) and one not in lets_run]
    most = max(found, key=lambda one: places[one].total, default=None)
    if most is None:
        return None
    return Tracer(max(places[most], key=places[most].__getitem__), places[most].total / spent.total)


def _are_everywhere(lines: Collection[tuple[str, int]]) -> bool:
    return len(lines) >= thresholds.TRACED_LINES and len({file for file, _ in lines}) >= thresholds.TRACED_FILES


def _is_protocol(frame: Frame) -> bool:
    """Whether Python or torch calls it by its name, as ``__torch_function__``: wherever that is asked for."""
    return frame.simple_name.startswith("__") and frame.simple_name.endswith("__")
