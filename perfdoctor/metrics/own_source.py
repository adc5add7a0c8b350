"""How much of the time lies where the job's own source says something of it.

That is in passes whose gradients nobody uses; behind a draw at random, since what comes before is the same in each
epoch; where batches are made of what the training loop changes itself; where gradients are accumulated; and in which
rounds of a loop something is done, and where the job evaluates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, calls_backward, is_own
from perfdoctor.knowledge.libraries import EVALUATES, LOADERS, UPDATES
from perfdoctor.recording.own_source import SourceCall, SourceDraw, SourceLoop, SourceRounds, SourceState, lines_of
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import POOL, PREPARES, TRAINING_PHASES, CodeLocation, place_of
from perfdoctor.timeline.stacks import Stacks


def unused_pass(calls: Iterable[SourceCall]) -> SourceCall | None:
    """Where a module is called whose gradients nobody uses: the first of such calls; None if there is none."""
    others = (call for call in calls if call.callee not in (*UPDATES, *LOADERS, EVALUATES))
    return next((call for call in others if call.is_unused), None)


def untrained_module(calls: Iterable[SourceCall]) -> str:
    """The module that only evaluates, with gradients, as it is written where it is told to; "" if there is none."""
    told = (call.text for call in calls if call.callee == EVALUATES and call.is_unused)
    found = (re.match(r"([\w.]+?)(?:\s*=[^=]|\.eval\()", text) for text in told)
    return next((one[1] for one in found if one is not None), "")


def part_in_call(stacks: Stacks, trainers: Collection[int], call: SourceCall) -> float | None:
    """The fraction of the trainers' time that lies in a call, and in what that calls; None where none was seen."""
    spent = stacks.spent_ns(trainers)
    lines = range(call.line, call.line + call.text.count("\n") + 1)
    inside = sum(
        amount
        for number, amount in spent.items()
        if any(
            frame.file == call.file and frame.line in lines and frame.simple_name == call.function
            for frame in stacks.frames[number]
        )
    )
    return inside / spent.total if spent.total else None


def part_after_draws(stacks: Stacks, draws: Iterable[SourceDraw], lines: Mapping[str, float]) -> float | None:
    """The fraction of the time of some lines that lies behind a draw, in their own function or in one that called it.

    Args:
        stacks: the job's.
        draws: in its source.
        lines: of the job's own, ``"file.py:12 function"`` to an amount.

    Returns:
        None where none of the lines was on a stack.
    """
    by_file: dict[str, list[SourceDraw]] = {}
    for draw in draws:
        by_file.setdefault(draw.file, []).append(draw)
    spent = stacks.spent_ns()
    train = {
        (frame.file, frame.function)
        for number in spent
        if stacks.locations[number].phase == "backward"
        for frame in stacks.frames[number]
    }
    whole: Amounts[str] = Amounts()
    behind: Amounts[str] = Amounts()
    for number, amount_ns in spent.items():
        line = stacks.locations[number].line
        whole[line] += amount_ns
        if any(_is_behind(frame, by_file.get(frame.file, ()), train) for frame in stacks.frames[number]):
            behind[line] += amount_ns
    seen = {line: amount for line, amount in lines.items() if whole[line]}
    total = sum(seen.values())
    return sum(amount * behind[line] / whole[line] for line, amount in seen.items()) / total if total else None


def _is_behind(frame: Frame, draws: Iterable[SourceDraw], train: Collection[tuple[str, str]]) -> bool:
    """Whether a call is at a line behind a draw; what a function that trains draws before its loops, it draws once."""
    trains = (frame.file, frame.function) in train
    inside = (one for one in draws if one.line <= frame.line <= one.last_line)
    return is_own(frame) and any(one.in_loop or not trains for one in inside)


def made_of_state(stacks: Stacks, statements: Iterable[SourceState]) -> str:
    """Where a loop makes most of its batches of what it changes; "" where it does not, or a loader makes most of them.

    Args:
        stacks: the job's.
        statements: in its source.
    """
    lines = lines_of(statements)
    whole, made = 0.0, Amounts[str]()
    for number, amount_ns in stacks.spent_ns().items():
        location = stacks.locations[number]
        prepares = location.detail == PREPARES
        whole += amount_ns * (prepares or location.phase == "data")
        frames = [frame for frame in stacks.frames[number] if (frame.file, frame.line) in lines]
        if prepares and frames:
            made[place_of(frames[0])] += amount_ns
    if not whole or made.total < thresholds.MOSTLY * whole:
        return ""
    return max(made, key=lambda place: made[place])


def pool_made_at(stacks: Stacks) -> str:
    """Where in the job's own code pools of processes come up or end, above all; "" where none was seen to.

    Args:
        stacks: the job's.
    """
    places = Amounts[str]()
    for number, amount_ns in stacks.spent_ns().items():
        if stacks.locations[number].detail == POOL:
            places[stacks.locations[number].line] += amount_ns
    return _most_of(places.total, places)


def prepared_per_pass(stacks: Stacks) -> str:
    """Where the loop prepares what all steps of a pass over the data share; "" if most that it prepares is for steps.

    Args:
        stacks: the job's.
    """
    whole, shared = 0.0, Amounts[str]()
    for number, amount_ns in stacks.spent_ns().items():
        location = stacks.locations[number]
        whole += amount_ns * (location.detail == PREPARES or location.phase == "data")
        if location.per_pass:
            shared[location.per_pass] += amount_ns
    return _most_of(whole, shared)


def when_done(stacks: Stacks, rounds: Sequence[SourceRounds], what: Callable[[CodeLocation], bool]) -> str:
    """In which rounds of a loop something is done, as a condition in Python; "" where it is not mostly in one such.

    Args:
        stacks: the job's.
        rounds: of loops in its source.
        what: which locations belong to it.
    """
    whole, chosen = 0.0, Amounts[str]()
    for number, amount_ns in stacks.spent_ns().items():
        if what(stacks.locations[number]):
            whole += amount_ns
            own = (frame for frame in reversed(stacks.frames[number]) if is_own(frame))
            if when := next((some.when for frame in own for some in rounds if _is_at(frame, some)), ""):
                chosen[when] += amount_ns
    return _most_of(whole, chosen)


def evaluated_at(stacks: Stacks) -> str:
    """Where the job's own code calls for its evaluation: the outermost line that leads to it and to no training.

    Args:
        stacks: the job's.

    Returns:
        "" where none leads to most of it: where a library's loop evaluates, or one that trains as well.
    """
    whole, chosen, trains, spent = 0.0, Amounts[str](), set[Frame](), stacks.spent_ns()
    for number in spent:
        location = stacks.locations[number]
        if location.phase in TRAINING_PHASES and not location.in_evaluation:
            trains.update(frame for frame in stacks.frames[number] if is_own(frame))
    for number, amount_ns in spent.items():
        if stacks.locations[number].evaluates:
            whole += amount_ns
            own = (frame for frame in stacks.frames[number] if is_own(frame))
            if branch := next((frame for frame in own if frame not in trains), None):
                chosen[place_of(branch)] += amount_ns
    return _most_of(whole, chosen)


def _most_of(whole: float, chosen: Amounts[str]) -> str:
    """Whichever has most of a whole amount; "" if none does."""
    most = max(chosen, key=lambda one: chosen[one], default="")
    return most if most and chosen[most] >= thresholds.MOSTLY * whole else ""


@dataclass(frozen=True, slots=True)
class AccumulatingLoop:
    """How a loop accumulates the gradients of one update.

    Attributes:
        loop: whose rounds are backward passes, as ``file:line function``.
        when: in which of its rounds the optimizer steps, as a condition in Python; "" if behind the loop.
    """

    loop: str
    when: str


def accumulating_loop(
    stacks: Stacks, loops: Iterable[SourceLoop], rounds: Iterable[SourceRounds]
) -> AccumulatingLoop | None:
    """Where several backward passes make one update; None where that is nowhere.

    The optimizer steps in the same function: behind the loop, or in every n-th of its rounds only.

    Args:
        stacks: the job's.
        loops: in its source.
        rounds: of loops in its source.
    """
    passes, updates = set[Frame](), set[Frame]()
    for number in stacks.spent_ns():
        found = passes if calls_backward(stacks.frames[number]) else updates
        if found is passes or stacks.locations[number].phase == "optimizer":
            found.update(frame for frame in stacks.frames[number] if is_own(frame))
    functions = {(frame.file, frame.function) for frame in updates}
    passes = {frame for frame in passes if (frame.file, frame.function) in functions}
    for loop in sorted(loops):
        lines = lines_of([loop])
        if (inside := _within(passes, lines)) and not _within(updates, lines):
            return AccumulatingLoop(_place(loop.file, loop.line, inside), "")
    for some in sorted(rounds):
        every = {(some.file, line) for line in range(some.loop_line, some.loop_last_line + 1)}
        lines = lines_of([some])
        inside, at_times = _within(passes, every), _within(updates, every)
        if inside and at_times and not _within(inside, lines) and at_times == _within(at_times, lines):
            return AccumulatingLoop(_place(some.file, some.loop_line, inside), some.when)
    return None


def _is_at(frame: Frame, some: SourceRounds) -> bool:
    return frame.file == some.file and some.line <= frame.line <= some.last_line


def _within(frames: Iterable[Frame], lines: Collection[tuple[str, int]]) -> set[Frame]:
    return {frame for frame in frames if (frame.file, frame.line) in lines}


def _place(file: str, line: int, inside: Iterable[Frame]) -> str:
    return f"{file}:{line} {min(frame.function for frame in inside)}"
