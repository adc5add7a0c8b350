"""Where the job's own code is in a step: above or below the call of the model, or called by torch in its midst.

In a loop of the job's own, the order of lines says more than frames of libraries: whoever is at a line above the one
from which the model is called prepares what it is called with, and whoever is below it uses what the model gave. Where
next to all of a step lies above it, no sample may have met the model's call: then the backward pass shows where it is,
or the source does.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.detours import BY_FRAMES, MODULES_MADE
from perfdoctor.knowledge.frames import Frame, is_own, package_of, runs_training_loop
from perfdoctor.knowledge.libraries import BACKWARD, CALLS_HOOKS, GRADIENT, OWN_OPERATORS, RESULTS
from perfdoctor.recording.own_source import SourceCall, SourceLoop, SourceReadOut, SourceResult, lines_of
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import AFTERWARDS, HOOK, MAKES_LAYERS, PREPARES, TRAINING_PHASES, CodeLocation

# The calls that lead to a function, its file and its name.
Function = tuple[tuple[Frame, ...], str, str]


def with_loop_positions(
    stacks: Sequence[tuple[Frame, ...]],
    locations: Sequence[CodeLocation],
    main_threads: Iterable[Mapping[int, float]],
    calls: Sequence[SourceCall] = (),
    loops: Iterable[SourceLoop] = (),
    results: Iterable[SourceResult] = (),
) -> list[CodeLocation]:
    """Gives the details ``PREPARES``, ``MAKES_LAYERS`` and ``AFTERWARDS`` to main threads in the job's own code.

    A stack in no phase of torch's is compared with those in which the model is called, in the innermost function of the
    job's own that they share: a line above all regular calls of the model prepares its input, unless it makes layers,
    and a line below the first uses its output; the latter also in a library's training loop, which calls the job's
    callbacks there. The same line shows nothing. Results that are sent, drawn or written there are logging. From the
    model's call to the line that starts the backward pass, what is at work for torch leads to that, as gradients do
    that stay in the graph. Where rounds that need the one before call the model, as a solver's do, a line above it is
    below it as well.

    Args:
        stacks: the distinct stacks, outermost call first.
        locations: of each.
        main_threads: per main thread, how long it was seen in each stack, by the stack's index.
        calls: in the source of the job's own.
        loops: likewise.
        results: statements of it that hand over numbers read out of tensors.
    """
    found, rounds = list(locations), [loop for loop in loops if loop.carries]
    told = lines_of(results)
    written, in_graph = _backward_lines(calls), {(one.file, one.function) for one in calls if one.callee == GRADIENT}
    for amounts in main_threads:
        models, backwards = (_lines_of(phase, stacks, found, amounts) for phase in ("forward", "backward"))
        models = models or _calls_by_backward(stacks, found, amounts, backwards or _written(stacks, amounts, written))
        for number in amounts:
            stack = stacks[number]
            if found[number].phase == "backward" and _takes_gradients(stack, in_graph):
                found[number] = replace(found[number], leads_to_backward=True)
            elif _unclaimed(found[number]):
                side = _side(stack, models)
                if side == PREPARES and any(row.matches(frame) for frame in stack for row in BY_FRAMES[MODULES_MADE]):
                    side = MAKES_LAYERS
                elif side == PREPARES and _is_between(stack, models, backwards, rounds):
                    side = AFTERWARDS
                logs = side == AFTERWARDS and any(row.matches(frame) for frame in stack for row in RESULTS)
                leads = side not in (PREPARES, MAKES_LAYERS) and not logs and _leads_to(backwards, stack, models)
                phase = "logging" if logs else "other"
                tells = side == AFTERWARDS and any((frame.file, frame.line) in told for frame in stack)
                position = replace(found[number], phase=phase, detail=side)
                found[number] = replace(position, leads_to_backward=leads, tells_results=tells)
    return found


def with_hooks(
    stacks: Sequence[tuple[Frame, ...]], locations: Sequence[CodeLocation], read_outs: Sequence[SourceReadOut]
) -> list[CodeLocation]:
    """Gives the detail ``HOOK`` to functions of the job's own that torch calls in a pass, and that only read out of it.

    torch calls hooks from other lines than ``forward``.

    Args:
        stacks: the distinct stacks, outermost call first.
        locations: of each.
        read_outs: functions of the job's own that only read values out.
    """
    if not read_outs:
        return list(locations)
    frames = {frame for stack in stacks for frame in stack}
    calls = {caller for caller in frames if any(row.matches(caller) for row in CALLS_HOOKS)}
    calls -= {
        caller for stack in stacks for caller, callee in itertools.pairwise(stack) if callee.simple_name == "forward"
    }
    lines = lines_of(read_outs)
    reading = {frame for frame in frames if is_own(frame) and (frame.file, frame.line) in lines}
    return [
        replace(location, detail=HOOK)
        if location.phase in TRAINING_PHASES and not reading.isdisjoint(_called_by(calls, stack))
        else location
        for stack, location in zip(stacks, locations, strict=True)
    ]


def _called_by(callers: Collection[Frame], stack: Sequence[Frame]) -> Iterator[Frame]:
    """What some frames call; a lambda gives back what it calls in turn."""
    called = False
    for frame in stack:
        if called and frame.simple_name != "<lambda>":
            yield frame
            called = False
        called = called or frame in callers


def with_calls_below(
    stacks: Sequence[tuple[Frame, ...]],
    locations: Sequence[CodeLocation],
    main_threads: Iterable[Mapping[int, float]],
) -> list[CodeLocation]:
    """Marks what is below a call of the model and above another one; what evaluates is not made ready for by that.

    The arguments are those of ``with_loop_positions``; it is known of the locations which evaluate.
    """
    found = list(locations)
    for amounts in main_threads:
        trains = {number: amount for number, amount in amounts.items() if not found[number].in_evaluation}
        models = _lines_of("forward", stacks, found, trains)
        for number in trains:
            if found[number].detail == AFTERWARDS and _precedes(stacks[number], models):
                found[number] = replace(found[number], precedes_model=True)
    return found


def _lines_of(
    phase: str, stacks: Sequence[tuple[Frame, ...]], found: Sequence[CodeLocation], amounts: Mapping[int, float]
) -> dict[Function, Amounts[int]]:
    """At which lines of which functions a phase was, and for how long."""
    lines: dict[Function, Amounts[int]] = {}
    for number, amount in amounts.items():
        if found[number].phase == phase:
            for function, line in functions(stacks[number]):
                lines.setdefault(function, Amounts())[line] += amount
    return lines


def _takes_gradients(stack: Sequence[Frame], in_graph: Collection[tuple[str, str]]) -> bool:
    """Whether a backward pass was asked for by one of some functions, by file and name, and not by ``backward``."""
    return any(
        callee.function == GRADIENT and (caller.file, caller.simple_name) in in_graph
        for caller, callee in itertools.pairwise(stack)
    )


def _backward_lines(calls: Iterable[SourceCall]) -> dict[tuple[str, str], int]:
    """By file and function in the job's own source, the first line from which a backward pass is begun there."""
    lines: dict[tuple[str, str], int] = {}
    for call in calls:
        if call.callee == BACKWARD:
            place = call.file, call.function
            lines[place] = min(call.line, lines.get(place, call.line))
    return lines


def _written(
    stacks: Sequence[tuple[Frame, ...]], amounts: Mapping[int, float], written: Mapping[tuple[str, str], int]
) -> dict[Function, Amounts[int]]:
    """The lines, in functions that were seen, from which the source begins a backward pass."""
    return {
        function: Amounts({written[place]: 1.0})
        for number in amounts
        for function, line in functions(stacks[number])
        if (place := (function[1], Frame(function[1], function[2], line).simple_name)) in written
    }


def _calls_by_backward(
    stacks: Sequence[tuple[Frame, ...]],
    found: Sequence[CodeLocation],
    amounts: Mapping[int, float],
    backwards: dict[Function, Amounts[int]],
) -> dict[Function, Amounts[int]]:
    """The lines of a backward pass in place of the model's call, which no sample met.

    What leads from the call to the backward pass takes no longer than that, which computes two results where it
    computes one. So code above them that takes longer is none of it.
    """
    above = sum(amounts[at] for at in amounts if _unclaimed(found[at]) and _side(stacks[at], backwards) == PREPARES)
    passes = sum(amounts[at] for at in amounts if found[at].phase == "backward")
    return backwards if above > passes else {}


def _unclaimed(location: CodeLocation) -> bool:
    return location.phase == "other" and not location.detail and bool(location.line)


def _side(stack: tuple[Frame, ...], calls: dict[Function, Amounts[int]]) -> str:
    """On which side of the model's call a stack is in the innermost function that calls it; "" if on none."""
    for function, line in reversed(list(functions(stack))):
        if function in calls:
            first, frame = min(_regular(calls[function])), stack[len(function[0])]
            if line > first and (is_own(frame) or runs_training_loop(frame)):
                return AFTERWARDS
            return PREPARES if line < first and is_own(frame) else ""
    return ""


def _precedes(stack: tuple[Frame, ...], calls: Mapping[Function, Amounts[int]]) -> bool:
    """Whether a regular call of the model is below a stack, in the innermost function that calls it."""
    lines = (
        line < max(_regular(calls[function]))
        for function, line in reversed(list(functions(stack)))
        if function in calls
    )
    return next(lines, False)


def _leads_to(
    backwards: Mapping[Function, Amounts[int]], stack: tuple[Frame, ...], calls: Mapping[Function, Amounts[int]]
) -> bool:
    """Whether a stack of the job's own or torch's code is between the model's call and the last backward pass after it.

    Of a loop with several passes, a generator's and a discriminator's, what is between two of them leads to the next.
    Where both passes lie in one call, an argument of that call or what takes its result is between neither.
    """
    if package_of(stack[-1].file) not in ("", "torch") and not any(map(OWN_OPERATORS.matches, stack)):
        return False
    for function, line in reversed(list(functions(stack))):
        if function in calls and function in backwards:
            first, last = min(_regular(calls[function])), max(_regular(backwards[function]))
            return first <= line <= last and not (first == last and _have_both(calls, backwards, function, line))
    return False


def _is_between(
    stack: tuple[Frame, ...],
    calls: Mapping[Function, Amounts[int]],
    backwards: Mapping[Function, Amounts[int]],
    rounds: Iterable[SourceLoop],
) -> bool:
    """Whether a stack of the job's own or torch's is in rounds that call the model, below what ends in a backward pass.

    A function that leaves both passes to another one gets no more from such a loop than what it acts by: rollouts.

    Args:
        stack: outermost call first.
        calls: of the model.
        backwards: which functions begin the pass.
        rounds: loops of which a round needs the one before.
    """
    if package_of(stack[-1].file) not in ("", "torch"):
        return False

    def ends_in_one(function: Function) -> bool:
        lines = backwards.get(function, ())
        return any(not _have_both(calls, backwards, function, line) for line in lines)

    inside = itertools.dropwhile(lambda one: not ends_in_one(one[0]), functions(stack))
    return any(
        function not in backwards
        and any(
            loop.line <= line <= loop.last_line and any(loop.line <= call <= loop.last_line for call in calls[function])
            for loop in rounds
            if loop.file == function[1]
        )
        for function, line in inside
        if function in calls
    )


def _have_both(
    calls: Mapping[Function, Amounts[int]], backwards: Mapping[Function, Amounts[int]], caller: Function, line: int
) -> bool:
    """Whether a function that is called at a line calls the model and leads to a backward pass itself."""
    above, file, name = caller
    return any(frames == (*above, Frame(file, name, line)) for frames, *_ in calls.keys() & backwards.keys())


def _regular(lines: Amounts[int]) -> Collection[int]:
    """Those lines that are not seen now and then only; all where each is."""
    often = [at for at, part in lines.fractions().items() if part >= thresholds.REGULAR_CALL]
    return often or lines


def functions(stack: tuple[Frame, ...]) -> Iterator[tuple[Function, int]]:
    """Each function on a stack, outermost first, and the line that it is at."""
    for depth, frame in enumerate(stack):
        yield (stack[:depth], frame.file, frame.function), frame.line
