"""What files are written for, and the cause of a wait for storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfdoctor.causes import (
    CHECKPOINT_WRITE,
    DATA_TRANSFER,
    INPUT_PREPROCESSING,
    LOG_WRITE,
    PYTHON_OVERHEAD,
    STORAGE_READ,
)
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import SHARED_MEMORY, WRITES
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.code_location import PREPARES, CodeLocation
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.threads import ThreadState

# What writing in these phases is for, and waiting for it, whoever carries it out: a thread of a library's, for
# instance.
WRITTEN = {"saving": CHECKPOINT_WRITE, "logging": LOG_WRITE}


def purpose(location: CodeLocation) -> str:
    """The cause of what is done at a location beside the model's passes: whatever that is for."""
    if location.phase in WRITTEN:
        return WRITTEN[location.phase]
    return INPUT_PREPROCESSING if location.phase == "data" or location.detail == PREPARES else PYTHON_OVERHEAD


@dataclass(frozen=True)
class Writing:
    """What a trainer's files are written for.

    Attributes:
        by_target: files that saving or logging code of a library was seen to write, with the cause.
        others: the cause of all others.
    """

    by_target: Mapping[str, str] = field(default_factory=dict)
    others: str = LOG_WRITE

    def cause(self, target: str, location: CodeLocation) -> str:
        """What writing to a target is for."""
        return WRITTEN.get(location.phase) or self.by_target.get(target, self.others)


def read_writing(job: JobTimeline, trainer: Process) -> Writing:
    """Determines it by frames of libraries, or else by how much is written and in how large pieces."""
    main = job.threads.main(trainer.pid)
    known: dict[str, str] = {}
    waited = 0.0
    if main is None:
        return Writing()
    for index, call in enumerate(main.syscalls[:-1]):
        if call not in WRITES or not main.targets[index].startswith("file:"):
            continue
        time = int(main.times_ns[index])
        waited += float(main.times_ns[index + 1] - time) / NS_PER_S
        phase = job.locator.locate(trainer.pid, time, main.at(time)).phase
        if phase == "saving":
            known[main.targets[index]] = WRITTEN[phase]
        elif phase in WRITTEN:
            known.setdefault(main.targets[index], WRITTEN[phase])
    written = job.counters.growth(f"pid:{trainer.pid}", "write_call_bytes_total")
    large = waited > 0 and written / waited >= thresholds.STATE_BYTES_PER_S and job.storage.saves_state(trainer.pid)
    return Writing(known, CHECKPOINT_WRITE if large else LOG_WRITE)


def blocked_cause(job: JobTimeline, state: ThreadState, time_ns: int, location: CodeLocation, writing: Writing) -> str:
    """The cause for a thread that is blocked in the kernel on storage.

    Args:
        job: the job.
        state: the thread at the instant.
        time_ns: the instant.
        location: where in the code it is.
        writing: what the files of its trainer are written for.
    """
    if state.syscall == "fault":
        return job.storage.fault_cause(time_ns)
    if state.syscall in WRITES:
        return DATA_TRANSFER if state.target.startswith(SHARED_MEMORY) else writing.cause(state.target, location)
    return WRITTEN[location.phase] if location.phase == "saving" else STORAGE_READ
