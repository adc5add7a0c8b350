"""Python stacks for speedscope.app, one profile for each thread.

The format is speedscope's own (github.com/jlfwong/speedscope, "Importing from custom sources"): stacks with the seconds
that each of them lasted.
"""

from __future__ import annotations

from typing import Any

from perfdoctor import __version__
from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.stacks import StackSeries

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def render(recording: Recording) -> bytes:
    """The profiles, as JSON; main threads first, and of these trainers in order of their ranks.

    Raises:
        PerfDoctorError: there are no stacks in the recording, or it is damaged.
    """
    import msgspec

    job = JobTimeline(recording)
    stacks, ranks = job.stacks, {trainer.pid: rank for rank, trainer in enumerate(job.processes.trainers)}
    series = [one for one in stacks.series if (one.stacks >= 0).any()]
    if not series:
        raise PerfDoctorError(
            f"There are no Python stacks in {recording.path}.", hint="`perfdoctor check PID` says what enables them."
        )
    frames: dict[Frame, int] = {}
    numbers = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack in stacks.frames]
    ordered = sorted(series, key=lambda one: (not one.is_main, ranks.get(one.pid, len(ranks)), one.pid, one.ident))
    document = {
        "$schema": SCHEMA,
        "exporter": f"perfdoctor {__version__}",
        "name": recording.path.name,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": one.function, "file": one.file, "line": one.line} for one in frames]},
        "profiles": [_profile(one, numbers, _name(one, recording)) for one in ordered],
    }
    return msgspec.json.encode(document)


def _name(series: StackSeries, recording: Recording) -> str:
    process = recording.processes.get(series.pid)
    return f"{process.name if process else 'process'} {series.pid}: {series.thread_name(recording)}"


def _profile(series: StackSeries, numbers: list[list[int]], name: str) -> dict[str, Any]:
    entries = list(series.entries())
    weights = [lasted_ns / NS_PER_S for _, lasted_ns, _ in entries]
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [numbers[stack] for _, _, stack in entries],
        "weights": weights,
    }
