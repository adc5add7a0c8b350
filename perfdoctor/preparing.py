"""Which of the job's own code prepares a step's input: what its loop runs before it calls the model.

A loop that makes its batches itself, without a DataLoader, shows no frame of torch's while it does. But it shows an
order: the line from which a batch is prepared stands above the one from which the model is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdoctor.amounts import Amounts
from perfdoctor.phases import PREPARES, Frame, Place, is_own
from perfdoctor.stacks import Stacks

# A line with less of the model's time than this is no training: a validation now and then at the top of the loop.
_REGULAR = 0.05
# The calls that lead to a function, and the function itself.
_Function = tuple[tuple[Frame, ...], str, str]


def mark_preparing(stacks: Stacks) -> None:
    """Gives the detail ``PREPARES`` to the places of stacks in which a main thread prepares a step's input.

    A stack of no phase of torch's is compared with those in which the model is called, in the innermost function of the
    job's own that they share: whoever is at a line above all regular calls of the model prepares what it is called
    with. Lines below it, and the same line, tell nothing.
    """
    for track in stacks.tracks:
        if not track.is_main:
            continue
        amounts = track.amounts_ns()
        calls: dict[_Function, Amounts[int]] = {}
        for number, amount in amounts.items():
            if stacks.places[number].phase == "forward":
                for function, line in _functions(stacks.frames[number]):
                    calls.setdefault(function, Amounts())[line] += amount
        for number in amounts:
            place = stacks.places[number]
            if _unclaimed(place) and _stands_above(stacks.frames[number], calls):
                stacks.places[number] = replace(place, detail=PREPARES)


def _unclaimed(place: Place) -> bool:
    return place.phase == "other" and not place.detail and bool(place.line)


def _stands_above(stack: tuple[Frame, ...], calls: dict[_Function, Amounts[int]]) -> bool:
    """Whether a stack is at a line above those from which the same function calls the model."""
    for function, line in reversed(list(_functions(stack))):
        if function in calls:
            regular = [at for at, part in calls[function].fractions().items() if part >= _REGULAR]
            return is_own(stack[len(function[0])]) and line < min(regular)
    return False


def _functions(stack: tuple[Frame, ...]) -> Iterator[tuple[_Function, int]]:
    """Each function on a stack, outermost first, and the line that it is at."""
    for depth, frame in enumerate(stack):
        yield (stack[:depth], frame.file, frame.function), frame.line
