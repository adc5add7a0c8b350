"""A job as probes see it: processes, threads whose states repeat, stacks that take turns, readings; and its recording.

Each function returns samples; lists of them make a job, which ``recorded`` and ``timeline`` read by way of a file.
Times are seconds since the recording began, at ``START``.
"""

import json
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import (
    CodeSample,
    InterpreterSample,
    ProcessGone,
    ProcessSeen,
    PythonThread,
    Reading,
    Sample,
    StackSegment,
    ThreadSample,
    ThreadSeen,
)
from perfdoctor.recording.writer import RecordingWriter
from perfdoctor.timeline.job import JobTimeline

START = 100 * NS_PER_S
SECONDS = 10
# Threads are sampled so often, as by default.
PER_S = 50
# Of a function of the job's own, of torch's modules, and where threads begin.
OWN = Frame("/home/me/train.py", "main", 7)
MODULE = Frame("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", "Module._call_impl", 1789)
BOOTSTRAP = Frame("/usr/lib/python3.11/threading.py", "_bootstrap", 1002)


def at(seconds: float) -> int:
    """The instant on the one clock, in ns."""
    return START + round(seconds * NS_PER_S)


def process(
    pid: int,
    *,
    parent: int = 1,
    started_s: float = -9.0,
    ended_s: float | None = None,
    forked: bool = False,
    uses_torch: bool | None = True,
    command: str = "python",
    **variables: str,
) -> list[Sample]:
    """A process, and those variables of its environment that matter."""
    environment = json.dumps(variables or None)
    seen = ProcessSeen(START, pid, parent, at(started_s), "python", forked, uses_torch, command, environment)
    return [seen] if ended_s is None else [seen, ProcessGone(at(ended_s), pid)]


def thread(
    tid: int, pid: int, states: str = "R", *, name: str = "python", call: str | None = "futex", target: str = "",
    run: float = 0.0, delay: float = 0.0, switches: float = 10.0, faults: float = 0.0, squeezed_from_s: float = SECONDS,
    minor_faults: Callable[[float], float] = lambda seconds: 0.0,
) -> list[Sample]:  # fmt: skip
    """A thread whose states repeat, and whose counters grow steadily.

    Args:
        tid: its id.
        pid: of its process.
        states: one for each sample.
        name: its name.
        call: the system call that it sleeps in.
        target: what that is about.
        run: cores that it uses.
        delay: cores that it waits for.
        switches: voluntary ones per second, read at each fifth sample.
        faults: major ones per second.
        minor_faults: how many it took up to a second.
        squeezed_from_s: when it begins to wait for half of the time that it ran before.
    """
    samples: list[Sample] = [ThreadSeen(START, tid, pid, name)]
    for tick in range(SECONDS * PER_S + 1):
        now, seconds = at(tick / PER_S), tick / PER_S
        state = states[tick % len(states)]
        where = (call, target) if call is not None and state in "SD" else (None, "")
        lost = run / 2 * max(0, now - at(squeezed_from_s))
        used = int(run * (now - START) - lost), int(delay * (now - START) + lost)
        switched = int(switches * seconds) if tick % 5 == 0 else None
        minor = int(minor_faults(seconds))
        samples.append(ThreadSample(now, tid, state, *where, *used, switched, 0, minor, int(faults * seconds)))
    return samples


def named(tid: int, pid: int, ident: int, name: str = "") -> list[Sample]:
    """Python's identifier of a thread, in which its stacks speak, and its name in Python."""
    return [PythonThread(START, pid, tid, ident, name)]


def stacks(
    pid: int,
    *taking_turns: tuple[Frame, ...],
    ident: int = 1,
    times: int = 200,
    every_s: float = 0.05,
    from_s: float = 0.0,
) -> list[StackSegment]:
    """A thread that is seen so many times, in each of some stacks in turn; in an empty one it is in no Python code."""
    events: list[dict[str, Any]] = []
    open_frames = 0
    for number, frames in enumerate(islice(cycle(taking_turns), times)):
        now = {"pid": pid, "tid": ident, "ts": round((from_s + number * every_s) * 1e6)}
        events += [{**now, "ph": "E"}] * open_frames
        for frame in frames:
            line = {"filename": frame.file, "line": frame.line}
            events.append({**now, "ph": "B", "name": frame.function, "args": line})
        open_frames = len(frames)
    return [StackSegment(START, 0, at(SECONDS), pid, zlib.compress(json.dumps(events).encode()))]


def gil(pid: int, *holders: int | None) -> list[Sample]:
    """A GIL that one thread keeps, or several by turns: 0 for nobody, None if unknown."""
    turns = islice(cycle(holders), SECONDS * PER_S)
    return [InterpreterSample(at(tick / PER_S), pid, holder, collecting=None) for tick, holder in enumerate(turns)]


def code(
    tid: int, image: str, symbol: str, times: int, *, from_s: float = 0.0, until_s: float = SECONDS
) -> list[Sample]:
    """A thread that was so many times in a function of machine code, at even distances."""
    step = (until_s - from_s) / max(1, times)
    return [CodeSample(at(from_s + number * step), tid, image, 0, symbol) for number in range(times)]


def readings(subject: str, name: str, *values: float | None, every_s: float = 1.0, probe: str = "test") -> list[Sample]:
    """One value after the other."""
    return [Reading(at(number * every_s), probe, subject, name, value) for number, value in enumerate(values)]


def write(path: Path, samples: Iterable[Sample] = (), **meta: str) -> Path:
    """A recording of these samples."""
    with RecordingWriter(path, {"start_ns": str(START), **meta}) as writer:
        writer.add(samples)
    return path


@contextmanager
def recorded(samples: Iterable[Sample], **meta: str) -> Iterator[Recording]:
    """Reads a recording of these samples."""
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder, "job.perfdoctor"), samples, **meta)
        with Recording.open(file) as recording:
            yield recording


def timeline(samples: Iterable[Sample], **meta: str) -> JobTimeline:
    """What every thread of a job did, read from its recording."""
    with recorded(samples, **meta) as recording:
        _ = recording.facts  # else they are read when they are first asked for, and the file is closed by then
        return JobTimeline(recording)
