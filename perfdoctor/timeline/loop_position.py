"""Where in a loop of the job's own the time goes: above the line that calls the model, or below it.

A loop that makes its batches itself, without a DataLoader, shows no frame of torch's while it does. But it shows an
order: the line from which a batch is prepared stands above the one from which the model is called, and what is made of
the model's output stands below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdoctor.amounts import Amounts
from perfdoctor.knowledge.frames import Frame, is_own
from perfdoctor.timeline.code_location import AFTERWARDS, PREPARES, Place
from perfdoctor.timeline.stacks import Stacks

# A line with less of the model's time than this is no training: a validation now and then at the top of the loop.
_REGULAR = 0.05
# The calls that lead to a function, and the function itself.
_Function = tuple[tuple[Frame, ...], str, str]


def mark_own_loop(stacks: Stacks) -> None:
    """Gives the details ``PREPARES`` and ``AFTERWARDS`` to the places of main threads' stacks in the job's own code.

    A stack of no phase of torch's is compared with those in which the model is called, in the innermost function of the
    job's own that they share: whoever is at a line above all regular calls of the model prepares what it is called
    with, and whoever is at a line below the first uses what it gave. The same line tells nothing.
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
            if _unclaimed(place):
                stacks.places[number] = replace(place, detail=_side(stacks.frames[number], calls))


def _unclaimed(place: Place) -> bool:
    return place.phase == "other" and not place.detail and bool(place.line)


def _side(stack: tuple[Frame, ...], calls: dict[_Function, Amounts[int]]) -> str:
    """On which side of the model's call a stack is in the innermost function that calls it; "" if on none."""
    for function, line in reversed(list(_functions(stack))):
        if function in calls:
            first = min(at for at, part in calls[function].fractions().items() if part >= _REGULAR)
            if line == first or not is_own(stack[len(function[0])]):
                return ""
            return PREPARES if line < first else AFTERWARDS
    return ""


def _functions(stack: tuple[Frame, ...]) -> Iterator[tuple[_Function, int]]:
    """Each function on a stack, outermost first, and the line that it is at."""
    for depth, frame in enumerate(stack):
        yield (stack[:depth], frame.file, frame.function), frame.line
