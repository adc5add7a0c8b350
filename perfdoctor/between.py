"""What passes between training steps, a validation for instance: no step is charged with it, so it is told apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.amounts import Amounts
from perfdoctor.clock import NS_PER_S
from perfdoctor.diagnosis import NotExamined
from perfdoctor.evidence.own_code import by_function
from perfdoctor.scene.scene import Scene
from perfdoctor.scene.steps import Steps

# Between two epochs there always is something; from this fraction of the time on, steps alone do not tell the pace.
WORTH_TELLING = 0.1


def told_between(scene: Scene) -> Iterator[NotExamined]:
    """Says where the time between the observed steps goes, for each trainer that spends much of it there."""
    for trainer in scene.roles.trainers:
        steps = scene.steps.get(trainer.pid)
        if steps is None or not steps.all:
            continue
        whole = steps.all[-1].end_ns - steps.all[0].start_ns
        between = steps.outside_ns
        if between < WORTH_TELLING * whole:
            continue
        where = by_function(_lines(scene, trainer.pid, steps))
        most = f", most of them at {where[0][0]}" if where else ""
        rank = f" of rank {trainer.rank}" if scene.roles.world_size > 1 else ""
        yield NotExamined(
            "steps",
            f"{between / NS_PER_S:.3g} s{rank}, {between / whole:.0%} of the observed time, passed between training "
            f"steps, in a validation for instance{most}. No step is charged with them, and they are in no share.",
            "validate less often, or on less, if that is too much; `perfdoctor attach PID` counts all time",
        )


def _lines(scene: Scene, pid: int, steps: Steps) -> Amounts[str]:
    """The job's own lines that were on the stack between steps."""
    timeline = scene.timelines.main(pid)
    lines: Amounts[str] = Amounts()
    if timeline is None:
        return lines
    begins = np.array([step.from_ns for step in steps.all])
    ends = np.array([step.end_ns for step in steps.all])
    times = timeline.times_ns[(timeline.times_ns >= steps.all[0].start_ns) & (timeline.times_ns < ends[-1])]
    last = np.searchsorted(begins, times, side="right") - 1
    outside = (last < 0) | (times >= ends[np.maximum(last, 0)])
    for time in times[outside].tolist():
        if line := scene.place_at(pid, time, scene.main_at(pid, time)).line:
            lines[line] += 1
    return lines
