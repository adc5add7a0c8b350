"""Processes that a trainer asks by itself, environments for instance: how many work at once, and for what."""

from __future__ import annotations

from statistics import fmean

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import CHANNELS
from perfdoctor.knowledge.frames import ASKS
from perfdoctor.timeline.code_location import AFTERWARDS
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.stand_ins import ENOUGH, drawn
from perfdoctor.timeline.threads import ThreadState


def helpers_at_once(job: JobTimeline) -> float | None:
    """How many helpers of a trainer work at a time while it waits for an answer; None where that was hardly seen."""
    at_once: list[int] = []
    for trainer in _helped(job):
        helpers = job.processes.helpers_of(trainer.pid)
        for time_ns in drawn(job.threads.main_times(trainer.pid), ENOUGH):
            if _waits_for_another(job.threads.main_at(trainer.pid, time_ns)):
                states = [job.threads.main_at(one.pid, time_ns) for one in helpers if one.alive_at(time_ns)]
                at_once.append(sum(not state.is_gone and not _waits_for_another(state) for state in states))
    return fmean(at_once) if len(at_once) >= thresholds.WORKER_SAMPLES else None


def _helped(job: JobTimeline) -> list[Process]:
    """Trainers that have helpers and no loader workers."""
    roles = job.processes
    return [one for one in roles.trainers if roles.helpers_of(one.pid) and not roles.workers_of(one.pid)]


def _waits_for_another(state: ThreadState) -> bool:
    return state.state == "S" and state.target.startswith(CHANNELS)


def how_asked(job: JobTimeline) -> str | None:
    """How trainers ask other processes; None where they were not seen to ask.

    Returns:
        ``for the model`` where one asks below the line that calls the model, so that answers depend on what that said;
        else ``for input``.
    """
    series = (job.stacks.of_main(trainer.pid) for trainer in _helped(job))
    seen = {number for one in series if one is not None for number in one.amounts_ns()}
    asking = [
        number for number in seen if any(row.matches(frame) for frame in job.stacks.frames[number] for row in ASKS)
    ]
    if not asking:
        return None
    below = any(job.stacks.locations[number].detail == AFTERWARDS for number in asking)
    return "for the model" if below else "for input"
