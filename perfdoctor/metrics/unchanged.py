"""How much of the time goes into what the job's own code makes in each step of what never changes.

Source says what a function makes of its parameters alone, and which calls are given something that no step changes.
Only stacks say which function a call calls, of which object: so what never changes is followed along them, from the
loop that trains to the statement that makes the same again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.detours import UNCHANGED
from perfdoctor.knowledge.frames import Frame, calls_model, is_own
from perfdoctor.knowledge.pure_calls import HANDS_ON
from perfdoctor.metrics.own_detours import CostlyDetour, Piece, cause_of
from perfdoctor.recording.own_source import SourceGiven, SourceUnchanged, by_line
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.stacks import Stacks

# What a module or another object is called by.
_CALLED_AS = ("forward", "__call__")
_Lines = Mapping[tuple[str, int], Sequence[SourceUnchanged]]
_Calls = Mapping[tuple[str, int], Sequence[SourceGiven]]


def find_unchanged(
    stacks: Stacks,
    trainers: Collection[int],
    made: Collection[SourceUnchanged],
    given: Collection[SourceGiven],
    own: Mapping[str, Mapping[str, float]],
    at_work: float,
) -> Iterator[CostlyDetour]:
    """What the trainers' steps make again, where that takes enough of the time to be reported.

    Args:
        stacks: the job's.
        trainers: process ids.
        made: statements that make the same whenever some parameters are the same.
        given: calls that are given what never changes.
        own: the lines of each cause, ``"file.py:12 function"`` to seconds.
        at_work: the fraction of the wall time in which main threads do not queue for a core.
    """
    statements, calls = by_line(made), by_line(given)
    spent = stacks.spent_ns(trainers) if statements else Amounts[int]()
    lines: defaultdict[tuple[str, str], Amounts[str]] = defaultdict(Amounts)
    pieces: defaultdict[tuple[str, str], Amounts[SourceUnchanged]] = defaultdict(Amounts)
    for number, amount in spent.items():
        location = stacks.locations[number]
        found = _made_again(stacks.frames[number], statements, calls) if location.is_in_step else None
        if found is not None:
            one, frame = found
            lines[one.file, frame.function][location.line] += amount
            pieces[one.file, frame.function][one] += amount
    for (file, function), there in lines.items():
        if there.total >= thresholds.REPORTED_SHARE * spent.total:
            some = pieces[file, function]
            costly = sorted(some, key=lambda one: -some[one])
            line, share = f"{file}:{costly[0].line} {function}", at_work * there.total / spent.total
            what = tuple(dict.fromkeys(Piece(one.text, one.key, one.put) for one in costly))
            yield CostlyDetour(UNCHANGED, line, frozenset(there), what, share, cause_of(there, own))


def _made_again(frames: Sequence[Frame], statements: _Lines, calls: _Calls) -> tuple[SourceUnchanged, Frame] | None:
    """The outermost statement on a stack that makes what is the same in each step, and its frame."""
    asked: Sequence[SourceGiven] = ()
    own = [at for at, frame in enumerate(frames) if is_own(frame)]
    for at, after in zip(own, [*own[1:], len(frames)], strict=True):
        frame, below = frames[at], frames[after] if after < len(frames) else None
        module = calls_model(frames[at + 1 : at + 2])  # what that computes is another part of the statement
        for one in statements.get((frame.file, frame.line), ()):
            is_there = below is not None and below.simple_name == one.callee if one.callee else not module
            if is_there and all(_is_given(need, asked, frame) for need in one.needs.split()):
                return one, frame
        handed_on = all(any(row.matches(one) for row in HANDS_ON) for one in frames[at + 1 : after])
        asked = _resolved(calls.get((frame.file, frame.line), ()), asked, frame) if handed_on else ()
    return None


def _is_given(need: str, asked: Sequence[SourceGiven], frame: Frame) -> bool:
    """Whether a parameter of a call on a stack never changes, by all calls that may have called it."""
    place, _, name = need.partition(":")
    callers = [one for one in asked if frame.simple_name in (one.callee, *_CALLED_AS)]
    values = [value for one in callers for value in one.given.split() if value.partition("=")[0] in (place, name)]
    return bool(values) and all("=" in value for value in values)


def _resolved(calls: Sequence[SourceGiven], asked: Sequence[SourceGiven], frame: Frame) -> Sequence[SourceGiven]:
    """Calls at a line, with what of their arguments never changes, now that it is known what the function was given."""
    return [one._replace(given=" ".join(_known(value, asked, frame) for value in one.given.split())) for one in calls]


def _known(value: str, asked: Sequence[SourceGiven], frame: Frame) -> str:
    """What is given in one place: nothing stands behind it if it may change."""
    place, given, needs = value.partition("=")
    same = given and all(_is_given(need, asked, frame) for need in needs.split(",") if need)
    return f"{place}=" if same else place
