"""Passes without gradients: which stacks of a thread that trains belong to an evaluation, and which of its time.

Nobody sees from outside whether gradients are kept, but a forward pass of training is followed by a backward pass.
Five things tell one that is not: it lies below an evaluation loop of a library; the function that trains calls it
below its last line of training; that function calls it in every n-th round only, and trains in the others; it lies in
a loop over batches of its own, beside a line that makes whole steps; or many more samples of forward passes than usual
lie between two of training, at lines that train as well or in a loop over batches of their own. Passes that only act,
in environments or on prompts, are what the next steps learn from.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, calls_backward, calls_model, generates_text, in_loader, package_of
from perfdoctor.knowledge.libraries import EVALUATION_LOOPS, OF_STEPS
from perfdoctor.recording.own_source import SourceRounds, lines_of
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.loop_positions import Function, functions

if TYPE_CHECKING:
    from perfdoctor.timeline.stacks import StackSeries  # it marks what it reads by what is found here

Stack = tuple[Frame, ...]
# Only training is in these, and every pass of training is.
_TRAINS = ("backward", "optimizer")
_MODEL = ("forward", "loss")
# What is read, saved or logged in between has causes of its own.
APART = ("data", "saving", "logging")


def with_evaluation(
    stacks: Sequence[Stack],
    locations: Sequence[CodeLocation],
    main_threads: Sequence[Mapping[int, float]],
    rounds: Sequence[SourceRounds] = (),
) -> list[CodeLocation]:
    """Marks the locations of stacks that belong to an evaluation.

    Args:
        stacks: the distinct stacks, outermost call first.
        locations: of each.
        main_threads: per main thread, how long it was seen in each stack, by the stack's index.
        rounds: what the source of the job's own does in some rounds of loops only.
    """
    found = list(locations)
    for amounts in main_threads:
        passes = _called_after_training(stacks, locations, amounts) | _loops_beside_steps(stacks, locations, amounts)
        passes |= _in_some_rounds(stacks, locations, amounts, rounds)
        for number in amounts:
            stack = stacks[number]
            if _in_loop_of_library(stack) or _is_below(stack, passes):
                passes_only = locations[number].phase not in APART
                found[number] = replace(locations[number], in_evaluation=True, evaluates=passes_only)
    return found


def evaluation_spans(
    series: StackSeries, stacks: Sequence[Stack], locations: Sequence[CodeLocation]
) -> list[tuple[int, int]]:
    """When a thread that trains was seen in forward passes far more often than between two samples of training.

    A loop may evaluate at the very lines at which it trains; other passes evaluate if no training fetches its batches
    where they fetch theirs. A stack that was not seen to change counts once: whether it lasted or was not sampled is
    not known.

    Args:
        series: its stacks.
        stacks: the distinct stacks, outermost call first.
        locations: of each, those marked that are known to belong to an evaluation.

    Returns:
        Begin and end of each such time, in ns.
    """
    gaps = list(_between_training(series, stacks, locations))
    if len(gaps) < thresholds.FEWEST_PASSES:
        return []
    seen = [len(gap.passes) for gap in gaps]
    usual = max(1.0, float(np.median(seen)))
    # Of steps that last long each has one such gap, with many passes, and none between its samples of training.
    of_step = float(np.median([count for count in seen if count] or [0]))
    most = max(thresholds.PASSES_WITHOUT_TRAINING * usual, thresholds.PASSES_OF_STEPS * of_step)
    ordinary = Counter(place for gap in gaps if len(gap.passes) <= max(2 * usual, of_step) for place in gap.passes)
    trains_at = {place for place, count in ordinary.items() if count >= thresholds.REGULAR_CALL * ordinary.total()}
    # The first and the last may be parts of an evaluation.
    fetches_at = {place for gap in gaps[1:-1] if len(gap.passes) <= most for place in gap.fetches}
    return [
        (gap.start_ns, gap.end_ns)
        for gap in gaps
        if sum(place in trains_at for place in gap.passes) > most
        or (len(gap.passes) > most and not gap.fetches <= fetches_at)
    ]


# A line of a file's function.
_Place = tuple[str, str, int]


@dataclass
class _Gap:
    """A time without a sample of training.

    Attributes:
        start_ns, end_ns: when it was.
        passes: for each sample of a forward pass in it, from where the innermost function that trains led there.
        fetches: where the job's own code fetches batches from a loader.
    """

    start_ns: int
    end_ns: int = 0
    passes: list[_Place] = field(default_factory=list)
    fetches: set[_Place] = field(default_factory=set)


def _between_training(
    series: StackSeries, stacks: Sequence[Stack], locations: Sequence[CodeLocation]
) -> Iterator[_Gap]:
    entries = list(series.entries())
    seen = {number for _, _, number in entries}
    training = {number for number in seen if locations[number].phase in _TRAINS}
    functions_that_train = {call[:2] for number in training for call in _before_step(stacks[number])}
    passes, fetches = dict[int, list[_Place]](), dict[int, list[_Place]]()
    for number in seen - training:
        stack, location = stacks[number], locations[number]
        if location.phase in _MODEL and not location.evaluates and not generates_text(stack):
            passes[number] = [call for call in _before_step(stack) if call[:2] in functions_that_train][-1:]
        elif location.phase == "data" and any(map(in_loader, stack)):
            fetches[number] = _before_step(stack)[-1:]
    gap = _Gap(int(series.times_ns[0]))
    for start_ns, lasted_ns, number in entries:
        if number in training:
            gap.end_ns = start_ns
            yield gap
            gap = _Gap(start_ns + lasted_ns)
        gap.passes += passes.get(number, ())
        gap.fetches.update(fetches.get(number, ()))
    gap.end_ns = int(series.times_ns[-1])
    yield gap


def _before_step(stack: Stack) -> list[_Place]:
    """The job's calls that lead to a model, a loader, a backward pass or an optimizer, however it was launched."""
    before = tuple(itertools.takewhile(lambda frame: not OF_STEPS.search(frame.file), stack))
    return [(file, name, line) for (_, file, name), line in _own_calls(before)]


def _in_loop_of_library(stack: Stack) -> bool:
    return any(row.matches(frame) for frame in stack for row in EVALUATION_LOOPS)


# A function, and the line that it is at.
_Call = tuple[Function, int]


def _called_after_training(
    stacks: Sequence[Stack], locations: Sequence[CodeLocation], amounts: Mapping[int, float]
) -> set[_Call]:
    """Calls that lead to the model below the last line of training, in the innermost function that trains.

    None where no other call leads to it: then the loop trains in another order than that of its lines.
    """
    lines = _lines_of_training(stacks, locations, amounts)
    after: set[_Call] = set()
    trains = False
    for number in amounts:
        if calls_model(stacks[number]) and not _in_loop_of_library(stacks[number]):
            shared = [call for call in functions(stacks[number]) if call[0] in lines]
            if shared and shared[-1][1] > lines[shared[-1][0]]:
                after.add(shared[-1])
            else:
                trains = True
    return after if trains else set()


def _in_some_rounds(
    stacks: Sequence[Stack],
    locations: Sequence[CodeLocation],
    amounts: Mapping[int, float],
    rounds: Sequence[SourceRounds],
) -> set[_Call]:
    """Calls that lead to the model in every n-th round of a loop only, beside nothing that trains."""
    passes, training = set[_Call](), set[_Call]()
    for number in amounts if rounds else ():
        found = training if locations[number].phase in _TRAINS else passes if calls_model(stacks[number]) else set()
        found.update(_own_calls(stacks[number]))
    train = {function for function, _ in training}
    trained = {(file, line) for (_, file, _), line in training}
    apart = lines_of([some for some in rounds if trained.isdisjoint(lines_of([some]))])
    return {call for call in passes - training if call[0] in train and (call[0][1], call[1]) in apart}


def _loops_beside_steps(
    stacks: Sequence[Stack], locations: Sequence[CodeLocation], amounts: Mapping[int, float]
) -> set[_Call]:
    """Calls that take batches of their own from a loader, lead to the model and train nothing, beside whole steps.

    A helper that fetches a batch and calls the model for the step around it does the same. But there no other line of
    the function leads to forward and backward passes both.
    """
    fetching, passes, training = set[_Call](), set[_Call](), set[_Call]()
    for number in amounts:
        stack, phase = stacks[number], locations[number].phase
        if phase in _TRAINS:
            training.update(_own_calls(stack))
        elif phase in _MODEL and calls_model(stack) and not calls_backward(stack):
            passes.update(_own_calls(stack))
        elif phase == "data":
            loader = next((depth for depth, frame in enumerate(stack) if in_loader(frame)), 0)
            fetching.update(_own_calls(stack[:loader]))
    whole = {function for function, _ in passes & training}
    return {call for call in (passes & fetching) - training if call[0] in whole}


def _own_calls(stack: Stack) -> Iterator[_Call]:
    return (call for call in functions(stack) if package_of(call[0][1]) != "torch")


def _lines_of_training(
    stacks: Sequence[Stack], locations: Sequence[CodeLocation], amounts: Mapping[int, float]
) -> dict[Function, int]:
    """The last line at which each function, torch's aside, was regularly seen to call what only training does."""
    seen: dict[Function, Amounts[int]] = {}
    for number, amount in amounts.items():
        if locations[number].phase in _TRAINS:
            for function, line in _own_calls(stacks[number]):
                seen.setdefault(function, Amounts())[line] += amount
    return {
        function: max(line for line, part in at.fractions().items() if part >= thresholds.REGULAR_CALL)
        for function, at in seen.items()
    }


def _is_below(stack: Stack, calls: set[_Call]) -> bool:
    return any(call in calls for call in functions(stack))
