"""How much of the time lies in passes whose gradients nobody uses."""

from __future__ import annotations

from collections.abc import Iterable

from perfdoctor.knowledge.libraries import LOADERS, UPDATES
from perfdoctor.recording.own_source import SourceCall
from perfdoctor.timeline.stacks import Stacks


def unused_pass(calls: Iterable[SourceCall]) -> SourceCall | None:
    """Where a module is called whose gradients nobody uses: the first of such calls; None if there is none."""
    others = (call for call in calls if call.callee not in UPDATES and call.callee not in LOADERS)
    return next((call for call in others if call.is_unused), None)


def part_in_call(stacks: Stacks, call: SourceCall) -> float | None:
    """The fraction of the main threads' time that lies in a call, and in what that calls; None where none was seen."""
    spent = stacks.spent_ns()
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
