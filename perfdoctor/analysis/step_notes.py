"""What a reader has to know about the observed steps: what passed between them, and whether each may be several."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.amounts import Amounts
from perfdoctor.diagnosis import NotExamined
from perfdoctor.metrics.own_code import by_function
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.steps import Steps

# Between two epochs there always is something; from this fraction of the time on, steps alone do not tell the pace.
_WORTH_TELLING = 0.1


def step_notes(job: JobTimeline) -> list[NotExamined]:
    """All that is to be said; nothing of a job that was watched from outside only."""
    return [*_time_between(job), *_several_in_one(job)]


def _time_between(job: JobTimeline) -> Iterator[NotExamined]:
    """Where the time between steps goes, a validation for instance: no step is charged with it."""
    for trainer in job.processes.trainers:
        steps = job.steps.get(trainer.pid)
        if steps is None or not steps.all:
            continue
        whole = steps.all[-1].end_ns - steps.all[0].start_ns
        between = steps.outside_ns
        if between < _WORTH_TELLING * whole:
            continue
        where = by_function(_lines_between(job, trainer.pid, steps))
        most = f", most of them at {where[0][0]}" if where else ""
        rank = f" of rank {trainer.rank}" if job.processes.world_size > 1 else ""
        yield NotExamined(
            "steps",
            f"{between / NS_PER_S:.3g} s{rank}, {between / whole:.0%} of the observed time, passed between training "
            f"steps, in a validation for instance{most}. No step is charged with them, and they are in no share.",
            "validate less often, or on less, if that is too much; `perfdoctor attach PID` counts all time",
        )


def _lines_between(job: JobTimeline, pid: int, steps: Steps) -> Amounts[str]:
    """The job's own lines that were on the stack between steps."""
    timeline = job.threads.main(pid)
    lines: Amounts[str] = Amounts()
    if timeline is None:
        return lines
    begins = np.array([step.from_ns for step in steps.all])
    ends = np.array([step.end_ns for step in steps.all])
    times = timeline.times_ns[(timeline.times_ns >= steps.all[0].start_ns) & (timeline.times_ns < ends[-1])]
    last = np.searchsorted(begins, times, side="right") - 1
    outside = (last < 0) | (times >= ends[np.maximum(last, 0)])
    for time in times[outside].tolist():
        if line := job.locator.locate(pid, time, job.threads.main_at(pid, time)).line:
            lines[line] += 1
    return lines


def _several_in_one(job: JobTimeline) -> Iterator[NotExamined]:
    """Steps of several backward passes, where nothing tells the passes of a loop apart: each ``with`` is one step."""
    for trainer in job.processes.trainers:
        steps = job.steps.get(trainer.pid)
        passes = 0 if steps is None else passes_per_step(steps)
        if passes > 1:
            yield NotExamined(
                "steps",
                f"Each `with diagnose():` held about {passes} backward passes, and neither a loader nor an optimizer "
                "of torch's that would tell steps apart: all of it counts as one step. Shares are not affected.",
                "put the `with` around one step, or call step() of what it gives where a step ends",
            )
            return


def passes_per_step(steps: Steps) -> int:
    """Backward passes in each step, rounded; 0 where a loader, an optimizer or ``step()`` told steps apart."""
    if not steps.all or steps.holds("optimizer"):
        return 0
    start, end = steps.all[0].start_ns, steps.all[-1].end_ns
    seen = [event.what for event in steps.events if start <= event.time_ns <= end]
    if "fetch" in seen or "leave loop" in seen or seen.count("leave") < len(steps.all) - 1:
        return 0
    return round(seen.count("worked") / len(steps.all))
