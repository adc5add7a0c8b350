"""For the tests of attach --trace: jobs that are traced, and what is left in them."""

import gzip
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfdoctor.analysis.profiled import read_profiles
from perfdoctor.capture.shared_folder import PLACES
from perfdoctor.capture.trace_job import trace
from perfdoctor.recording.schema import Profile, Sample, TraceCost, Unavailable
from perfdoctor.traces.rank import Rank
from tests.files import TARGETS
from tests.processes.attaching import Started, job, until

JOB = (sys.executable, str(TARGETS / "job_traced.py"))


@contextmanager
def traced_job(*options: str, **how: Any) -> Iterator[Started]:
    """A job of ``job_traced.py`` that trains."""
    with job(*JOB, *options, **how) as started:
        yield started


def take(*pids: int, functions: bool = False) -> list[Sample]:
    """What a trace of these processes yields."""
    return list(trace(pids, functions=functions))


def state(started: Started) -> dict[str, Any]:
    """What is in the process now that may come from outside."""
    started.process.send_signal(signal.SIGUSR1)
    assert started.process.stdout is not None
    for line in started.process.stdout:
        if line.startswith("state "):
            told: dict[str, Any] = json.loads(line.partition(" ")[2])
            return told
    raise AssertionError("the job ended")


def left_in(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What differs, but for how far the training is, and the one thread that Kineto starts with its first trace."""
    changing = ("steps", "slowest_s", "threads")
    found = {name: (before[name], after[name]) for name in before if name not in changing}
    differing = {name: pair for name, pair in found.items() if pair[0] != pair[1]}
    return {**differing, **({} if after["threads"] <= before["threads"] + 1 else {"threads": after["threads"]})}


def folders() -> list[Path]:
    """Folders of traces that are there now."""
    return [folder for place in PLACES for folder in Path(place).glob("perfdoctor-trace-*")]


def told_by(pid: int) -> list[str]:
    """What the script in a process has told so far."""
    for folder in folders():
        try:
            lines = (folder / "told").read_text().splitlines()
        except OSError:
            continue
        if f"taken {pid}" in lines:
            return lines
    return []


@contextmanager
def while_traced(pid: int) -> Iterator[list[Sample]]:
    """Begins a trace; the block runs once the profiler is on for the trace proper.

    Yields:
        What the trace yields, complete after the block.
    """
    found: list[Sample] = []
    tracing = threading.Thread(target=lambda: found.extend(take(pid)))
    tracing.start()
    try:
        assert until(lambda: sum(line.startswith("started ") for line in told_by(pid)) == 2)
        yield found
    finally:
        tracing.join()


def profiles(samples: Sequence[Sample]) -> dict[int, dict[str, Any]]:
    """The traces, by process."""
    return {one.pid: json.loads(gzip.decompress(one.trace)) for one in samples if isinstance(one, Profile)}


def ranks(samples: Sequence[Sample]) -> list[Rank]:
    """What they say."""
    return list(read_profiles([one for one in samples if isinstance(one, Profile)]).ranks.values())


def costs(samples: Sequence[Sample]) -> list[TraceCost]:
    """What they cost."""
    return [one for one in samples if isinstance(one, TraceCost)]


def reasons(samples: Sequence[Sample]) -> str:
    """Why there are none."""
    return " ".join(one.reason for one in samples if isinstance(one, Unavailable))


def names(trace_of: dict[str, Any]) -> list[str]:
    """Names of the events of a trace."""
    return [event.get("name", "") for event in trace_of["traceEvents"]]
