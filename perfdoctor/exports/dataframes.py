"""A recording as pandas DataFrames, for those who ask questions of their own, and these as files: CSV or Parquet.

``docs/notebook.md`` lists the frames and their columns. Times are in ``time_s``, seconds since the recording began,
beside ``time_ns``, CLOCK_MONOTONIC nanoseconds as in the recording; other columns that end in ``_s`` are seconds. What
could not be read is missing (NaN, None, <NA>), never zero. A recording that holds nothing of a kind gives an empty
frame with all its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge.symbols import classify
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.own_source import HowWritten, SourceCall
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import (
    CodeSample,
    CountedCall,
    Event,
    Fact,
    InterpreterSample,
    Mark,
    Reading,
    Sample,
    SerialMark,
    ThreadSample,
    ThreadSeen,
    Unavailable,
)
from perfdoctor.timeline.code_location import place_of
from perfdoctor.timeline.stacks import Stacks

if TYPE_CHECKING:  # pandas takes a third of a second of CPU time to load, which only those who ask for frames pay
    import pandas as pd


class NotebookRecording(Recording):
    """A recording for those who ask questions of their own: ``perfdoctor.Recording``."""

    def frames(self) -> dict[str, pd.DataFrame]:
        """Everything as pandas DataFrames, by name; ``docs/notebook.md`` lists them and their columns.

        Raises:
            PerfDoctorError: as ``rows``.
        """
        return read_frames(self)


def read_frames(recording: Recording) -> dict[str, pd.DataFrame]:
    """All frames of a recording by their names."""
    return {name: build(recording) for name, build in _FRAMES.items()}


def _processes(recording: Recording) -> pd.DataFrame:
    ended_ns, start_ns = recording.ended_ns, recording.start_ns
    columns = ("pid", "parent_pid", "process", "command", "forked", "uses_torch", "started_s", "ended_s")
    rows = [
        (
            one.pid, one.parent_pid, one.name, one.command, bool(one.forked), _truth(one.uses_torch),
            (one.started_ns - start_ns) / NS_PER_S,
            (ended_ns[one.pid] - start_ns) / NS_PER_S if one.pid in ended_ns else None,
        )
        for one in recording.processes.values()
    ]  # fmt: skip
    types = {"forked": "boolean", "uses_torch": "boolean", "started_s": "float", "ended_s": "float"}
    return _typed(_frame(rows, columns), types)


def _threads(recording: Recording) -> pd.DataFrame:
    return _with_thread(recording, _frame(((one.tid,) for one in recording.threads.values()), ("tid",)))


def _thread_samples(recording: Recording) -> pd.DataFrame:
    frame = _timed(recording, ThreadSample)
    for counter in ("run", "delay"):
        frame[f"{counter}_s"] = frame.pop(f"{counter}_ns") / NS_PER_S
    counts = ("voluntary", "involuntary", "minor_faults", "major_faults")
    frame = _with_thread(recording, _typed(frame, dict.fromkeys(counts, "Int64")))
    return _columns(frame, [*(str(name) for name in frame if name not in counts), *counts])


def _stacks(recording: Recording) -> pd.DataFrame:
    stacks = Stacks.read(recording.stacks(), HowWritten(recording.rows(SourceCall)))
    rows = []
    for series in stacks.series:
        thread = recording.thread_names.get((series.pid, series.ident))
        for time_ns, lasted_ns, number in series.entries():
            place, frames = stacks.locations[number], stacks.frames[number]
            calls = [place_of(frame) for frame in frames]
            rows.append(
                (
                    time_ns, series.pid, thread, series.is_main, lasted_ns / NS_PER_S, place.phase, place.detail,
                    place.line, calls[-1] if calls else "", ";".join(calls),
                )
            )  # fmt: skip
    columns = ("time_ns", "pid", "thread", "main", "lasted_s", "phase", "detail", "line", "function", "stack")
    frame = _since_start(recording, _frame(rows, columns).sort_values("time_ns", ignore_index=True))
    frame.insert(3, "process", frame["pid"].map(_process_names(recording)))
    return frame


def _code(recording: Recording) -> pd.DataFrame:
    names = recording.symbols
    frame = _timed(recording, CodeSample)
    offsets = frame.pop("offset")
    found = zip(frame["image"], offsets, frame["symbol"], strict=True)
    frame["symbol"] = [symbol or names.get((image, offset), "") for image, offset, symbol in found]
    frame["kind"] = [classify(*one) for one in zip(frame["image"], frame["symbol"], strict=True)]
    return _with_thread(recording, frame)


def _interpreter(recording: Recording) -> pd.DataFrame:
    frame = _timed(recording, InterpreterSample)
    frame["collecting"] = [_truth(one) for one in frame["collecting"]]
    frame.insert(3, "process", frame["pid"].map(_process_names(recording)))
    return _typed(frame, {"gil_tid": "Int64", "collecting": "boolean"})


def _readings(recording: Recording) -> pd.DataFrame:
    return _typed(_timed(recording, Reading), {"value": "float"})


def _facts(recording: Recording) -> pd.DataFrame:
    return _columns(_table(recording, Fact), ["probe", "subject", "name", "value"])


def _isolated_marks(recording: Recording) -> pd.DataFrame:
    return _since_start(recording, _table(recording, SerialMark).rename(columns={"at_ns": "time_ns"}))


_FRAMES: dict[str, Callable[[Recording], pd.DataFrame]] = {
    "processes": _processes,
    "threads": _threads,
    "thread_samples": _thread_samples,
    "stacks": _stacks,
    "code": _code,
    "interpreter": _interpreter,
    "readings": _readings,
    "facts": _facts,
    "marks": lambda recording: _timed(recording, Mark),
    "isolated_marks": _isolated_marks,
    "counted_calls": lambda recording: _timed(recording, CountedCall),
    "events": lambda recording: _timed(recording, Event),
    "unavailable": lambda recording: _table(recording, Unavailable),
}


def _frame(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    frame: pd.DataFrame = pd.DataFrame(list(rows), columns=list(columns))
    return frame


def _typed(frame: pd.DataFrame, types: dict[str, str]) -> pd.DataFrame:
    typed: pd.DataFrame = frame.astype(types)
    return typed


def _columns(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    chosen: pd.DataFrame = frame[names]
    return chosen


def _table(recording: Recording, kind: type[Sample]) -> pd.DataFrame:
    return _frame(recording.rows(kind), kind._fields)


def _timed(recording: Recording, kind: type[Sample]) -> pd.DataFrame:
    return _since_start(recording, _table(recording, kind))


def _since_start(recording: Recording, frame: pd.DataFrame) -> pd.DataFrame:
    """With seconds since the recording began before the nanoseconds of its clock."""
    frame = _typed(frame, {"time_ns": "int64"})
    frame.insert(0, "time_s", (frame["time_ns"] - recording.start_ns) / NS_PER_S)
    return frame


def _with_thread(recording: Recording, frame: pd.DataFrame) -> pd.DataFrame:
    """With the thread's name behind its number, and before it its process."""
    threads: dict[int, ThreadSeen] = recording.threads
    at = list(frame.columns).index("tid")
    owners = frame["tid"].map({tid: thread.pid for tid, thread in threads.items()}).astype("Int64")
    frame.insert(at, "pid", owners)
    frame.insert(at + 1, "process", owners.map(_process_names(recording)))
    frame.insert(at + 3, "thread", frame["tid"].map({tid: thread.name for tid, thread in threads.items()}))
    return frame


def _process_names(recording: Recording) -> dict[int, str]:
    return {pid: process.name for pid, process in recording.processes.items()}


def _truth(value: bool | None) -> bool | None:
    """SQLite keeps truth as 0 and 1."""
    return None if value is None else bool(value)


def write_csv(recording: Recording, folder: Path) -> None:
    """Writes the tables as CSV into a folder; what could not be read is empty.

    Raises:
        PerfDoctorError: the recording is damaged.
        OSError: a file cannot be written.
    """
    for name, frame in read_frames(recording).items():
        frame.to_csv(folder / f"{name}.csv", index=False)


def write_parquet(recording: Recording, folder: Path) -> None:
    """Writes the tables as Parquet into a folder; what could not be read is null.

    Raises:
        PerfDoctorError: pyarrow is not installed, or the recording is damaged.
        OSError: a file cannot be written.
    """
    if find_spec("pyarrow") is None:  # pandas' own message names a choice of libraries
        raise PerfDoctorError(
            "Parquet needs pyarrow, which is not installed.",
            hint="pip install 'perfdoctor[tables]', or write the same as CSV: --to csv FOLDER",
        )
    for name, frame in read_frames(recording).items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)
