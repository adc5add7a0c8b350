"""Threads as their samples show them."""

import pytest

from perfdoctor.recording.schema import BY_STOPS, TRACED_BY, Fact, Reading, Sample, ThreadSample, ThreadSeen
from perfdoctor.timeline.threads import read_threads
from tests.builders import jobs

STOPS = Reading(jobs.START, "code", "perfdoctor", BY_STOPS, 0.1)
DEBUGGER = Fact(jobs.START, "waits", "pid:1", TRACED_BY, "7 gdb")


@pytest.mark.parametrize(
    ("more", "state", "syscall"),
    [((STOPS,), "R", None), ((STOPS, DEBUGGER), "t", "fault"), ((DEBUGGER,), "t", "fault"), ((), "t", "fault")],
)
def test_a_thread_that_perfdoctor_itself_stopped_runs(
    more: tuple[Sample, ...], state: str, syscall: str | None
) -> None:
    seen = ThreadSeen(jobs.START, 1, 1, "python")
    stopped = ThreadSample(jobs.START, 1, "t", "fault", "somewhere", 0, 0, None, None, None, None)
    with jobs.recorded([seen, stopped, *more]) as recording:
        [thread] = read_threads(recording).values()
    assert (thread.states, thread.syscalls) == ([state], [syscall])
