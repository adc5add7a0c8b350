"""A recording as a trace for ui.perfetto.dev: states, stacks, phases, steps and counters on the one clock.

The format is that of Chrome's trace events, JSON, which Perfetto's importer reads (perfetto.dev, "External trace
formats"); a time is in microseconds since the recording began, or since the first mark if a job marked steps before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from perfdoctor import __version__
from perfdoctor.diagnosis import BACKWARD_PASSES
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S, NS_PER_US
from perfdoctor.recording.own_source import HowWritten, SourceCall
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CountedCall, Event, ThreadSample
from perfdoctor.timeline.counted_steps import CountedSteps, read_counted
from perfdoctor.timeline.marks import Marks, read_marks
from perfdoctor.timeline.stacks import Stacks, StackSeries
from perfdoctor.timeline.steps import Steps

# A sample of a thread stands for the time until the next one, and for no longer than this where none comes.
_LONGEST_NS = NS_PER_S // 2
_STATES = {"R": "running or ready", "S": "asleep", "D": "blocked", "T": "stopped", "t": "stopped", "I": "idle"}
# Numbers of tracks that are no threads, above any that Linux gives a thread (PID_MAX_LIMIT in linux/threads.h).
_STEPS, _PHASES, _STACKS = (1 << 22) + 1, (1 << 22) + 2, (1 << 22) + 10
_HOST = 0  # whatever is read of no process

Events = Iterator[dict[str, Any]]


def render(recording: Recording) -> bytes:
    """The trace, as JSON.

    Raises:
        PerfDoctorError: the recording is damaged.
    """
    import msgspec

    stacks = Stacks.read(recording.stacks(), HowWritten(recording.rows(SourceCall)))
    marks = read_marks(recording)
    events = [
        *_names(recording),
        *_thread_states(recording),
        *_stack_tracks(stacks, recording),
        *_phase_tracks(stacks, marks, recording.start_ns),
        *_step_tracks(marks, read_counted(recording.rows(CountedCall)), recording.start_ns),
        *_counters(recording),
        *_happenings(recording),
    ]
    start_ns = recording.start_ns + _begin_at_zero(events)
    about = {"perfdoctor": __version__, "clock": "CLOCK_MONOTONIC", "start_ns": start_ns}
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


def _begin_at_zero(events: Sequence[dict[str, Any]]) -> int:
    """Moves all events so that none is before zero, where Perfetto drops them; by how many ns time begins earlier."""
    earlier_us: float = min((event["ts"] for event in events if "ts" in event), default=0.0)
    if earlier_us >= 0:
        return 0
    for event in events:
        if "ts" in event:
            event["ts"] -= earlier_us
    return round(earlier_us * NS_PER_US)


def _names(recording: Recording) -> Events:
    yield _named("process_name", _HOST, 0, "host")
    for process in recording.processes.values():
        yield _named("process_name", process.pid, 0, process.name)
        yield {"ph": "M", "name": "process_labels", "pid": process.pid, "args": {"labels": process.command}}
    for thread in recording.threads.values():
        yield _named("thread_name", thread.pid, thread.tid, thread.name)


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(name: str, track: tuple[int, int], start_ns: int, end_ns: int, **arguments: Any) -> dict[str, Any]:
    pid, tid = track
    return {
        "ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start_ns / NS_PER_US,
        "dur": (end_ns - start_ns) / NS_PER_US, "args": arguments,
    }  # fmt: skip


def _thread_states(recording: Recording) -> Events:
    """What each thread did, samples alike run together."""
    by_thread: dict[int, list[ThreadSample]] = {}
    for sample in recording.rows(ThreadSample):
        by_thread.setdefault(sample.tid, []).append(sample)
    for tid, samples in by_thread.items():
        owner = recording.threads.get(tid)
        track = (owner.pid if owner else tid, tid)
        for first, end_ns in _runs(samples):
            name = first.syscall or _STATES.get(first.state, first.state)
            start, end = first.time_ns - recording.start_ns, end_ns - recording.start_ns
            yield _slice(name, track, start, end, state=first.state, target=first.target)


def _runs(samples: Sequence[ThreadSample]) -> Iterator[tuple[ThreadSample, int]]:
    """The first of samples in a row that are alike, and when their time ends."""
    first: ThreadSample | None = None
    for sample, following in pairwise([*samples, None]):
        assert sample is not None
        first = first or sample
        end_ns = sample.time_ns + _LONGEST_NS if following is None else following.time_ns
        goes_on = following is not None and end_ns - sample.time_ns <= _LONGEST_NS
        if following is None or not goes_on or _what(following) != _what(sample):
            yield first, min(end_ns, sample.time_ns + _LONGEST_NS)
            first = None


def _what(sample: ThreadSample) -> tuple[str, str | None, str]:
    return sample.state, sample.syscall, sample.target


def _stack_tracks(stacks: Stacks, recording: Recording) -> Events:
    """Each Python thread's calls, nested; on a track of its own, since its states nest otherwise."""
    for number, series in enumerate(stacks.series):
        track = (series.pid, _STACKS + number)
        yield _named("thread_name", *track, f"Python stack: {series.thread_name(recording)}")
        yield from _calls(series, stacks.frames, track, recording.start_ns)


def _calls(series: StackSeries, frames: Sequence[tuple[Frame, ...]], track: tuple[int, int], zero_ns: int) -> Events:
    """Calls from when each was first seen until it was seen no more."""
    open_calls: list[tuple[Frame, int]] = []
    end_ns = 0
    for start_ns, lasted_ns, number in series.entries():
        stack = frames[number] if start_ns <= end_ns else ()  # nothing is known of what lies between
        yield from _closed(open_calls, _alike(open_calls, stack), end_ns, track, zero_ns)
        open_calls += [(frame, start_ns) for frame in frames[number][len(open_calls) :]]
        end_ns = start_ns + lasted_ns
    yield from _closed(open_calls, 0, end_ns, track, zero_ns)


def _alike(open_calls: Sequence[tuple[Frame, int]], stack: Sequence[Frame]) -> int:
    """How many calls go on; another line of the same function is the same call."""
    count = 0
    for (call, _), frame in zip(open_calls, stack, strict=False):
        if (call.file, call.function) != (frame.file, frame.function):
            break
        count += 1
    return count


def _closed(
    open_calls: list[tuple[Frame, int]], left: int, end_ns: int, track: tuple[int, int], zero_ns: int
) -> Events:
    """Closes calls, the innermost first, until so many are left."""
    while len(open_calls) > left:
        frame, start_ns = open_calls.pop()
        yield _slice(frame.function, track, start_ns - zero_ns, end_ns - zero_ns, file=frame.file, line=frame.line)


def _phase_tracks(stacks: Stacks, marks: dict[int, Marks], zero_ns: int) -> Events:
    """The phases of training: as they were marked, or as the stacks of main threads show them."""
    found = {pid: [(one.start_ns, one.end_ns, one.name) for one in made.segments] for pid, made in marks.items()}
    for series in stacks.series:
        if series.is_main and series.pid not in found:
            entries = [
                (start, start + lasted, stacks.locations[stack].phase) for start, lasted, stack in series.entries()
            ]
            found[series.pid] = list(_joined(entries))
    for pid, phases in found.items():
        yield _named("thread_name", pid, _PHASES, "phases")
        for start_ns, end_ns, name in phases:
            yield _slice(name, (pid, _PHASES), start_ns - zero_ns, end_ns - zero_ns)


def _joined(spans: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    """Spans that follow each other without a gap and are called alike, as one."""
    last: tuple[int, int, str] | None = None
    for start, end, name in spans:
        if last is not None and last[1] == start and last[2] == name:
            last = (last[0], end, name)
            continue
        if last is not None:
            yield last
        last = (start, end, name)
    if last is not None:
        yield last


def _step_tracks(marks: dict[int, Marks], counted: dict[int, CountedSteps], zero_ns: int) -> Events:
    """Steps as they were marked, or else as they were counted."""
    found = {pid: (one.unit, one.steps.all) for pid, one in counted.items()}
    found |= {pid: ("steps", steps) for pid, made in marks.items() if (steps := Steps(made).all)}
    for pid, (unit, steps) in found.items():
        yield _named("thread_name", pid, _STEPS, unit)
        name = "backward pass" if unit == BACKWARD_PASSES else "step"
        for number, step in enumerate(steps, start=1):
            yield _slice(f"{name} {number}", (pid, _STEPS), step.from_ns - zero_ns, step.end_ns - zero_ns)


def _counters(recording: Recording) -> Events:
    """Levels as they were read; of what only grows, by how much in a second."""
    for (subject, name), (times, values) in recording.series.items():
        head, _, pid = subject.partition(":")
        owner = int(pid) if head == "pid" and pid.isdigit() else _HOST
        called = name if owner else f"{subject} {name}"
        points: Iterable[tuple[int, float]] = zip(times, values, strict=True)
        if name.endswith("_total"):
            called = f"{called.removesuffix('_total')} per second"
            points = _rates(times, values)
        for time_ns, value in points:
            at = (time_ns - recording.start_ns) / NS_PER_US
            yield {"ph": "C", "name": called, "pid": owner, "tid": 0, "ts": at, "args": {"value": value}}


def _rates(times: Sequence[int], values: Sequence[float]) -> Iterator[tuple[int, float]]:
    """The growth per second from each reading to the next; none where a counter began anew."""
    for (start, before), (end, after) in pairwise(zip(times, values, strict=True)):
        if end > start and after >= before:
            yield start, (after - before) * NS_PER_S / (end - start)


def _happenings(recording: Recording) -> Events:
    for event in recording.rows(Event):
        at = (event.time_ns - recording.start_ns) / NS_PER_US
        yield {
            "ph": "i", "s": "g", "name": event.kind, "pid": _HOST, "tid": 0, "ts": at, "args": {"text": event.text},
        }  # fmt: skip
