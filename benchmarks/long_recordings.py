"""How long an hour's recording takes to be reported: a short one, repeated.

What was seen in a short recording is written again and again, later each time, with counters that go on growing.
Processes and threads live all the time. RECORDING may be one of the corpus, packed.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import (
    TABLES,
    CodeSample,
    Event,
    InterpreterSample,
    LoaderSample,
    Mark,
    Reading,
    Sample,
    StackMissed,
    StackSegment,
    ThreadSample,
)
from perfdoctor.recording.writer import RecordingWriter
from tests.recordings import packing

S = TypeVar("S", ThreadSample, Reading)
TARGET_S = 10.0
REPEATED = (ThreadSample, Reading, CodeSample, InterpreterSample, LoaderSample, Mark, StackMissed, StackSegment)
COUNTERS = ("run_ns", "delay_ns", "voluntary", "involuntary", "minor_faults", "major_faults")


def lengthen(recording: Recording, minutes: float, target: Path) -> None:
    """Writes a recording of so many minutes that repeats a short one."""
    span = recording.end_ns - recording.start_ns
    times = max(1, round(minutes * 60 * NS_PER_S / span))
    threads, readings = recording.rows(ThreadSample), recording.rows(Reading)
    of_threads = {
        tid: list(rows) for tid, rows in groupby(sorted(threads, key=lambda row: row.tid), lambda row: row.tid)
    }
    growth = {tid: {name: _growth(rows, name) for name in COUNTERS} for tid, rows in of_threads.items()}
    counted: dict[tuple[str, str], list[float]] = {}
    for row in readings:
        if row.name.endswith("_total") and row.value is not None:
            counted.setdefault((row.subject, row.name), []).append(row.value)
    with RecordingWriter(target, recording.meta) as writer:
        for table in TABLES:
            if table not in REPEATED and table is not Event:
                writer.add(recording.rows(table))
        for number in range(times):
            later = number * span
            for row in threads:
                grown = {
                    name: value + number * growth[row.tid][name]
                    for name in COUNTERS
                    if (value := getattr(row, name)) is not None
                }
                writer.add([row._replace(time_ns=row.time_ns + later, **grown)])
            for reading in readings:
                values = counted.get((reading.subject, reading.name))
                if values is not None and reading.value is not None:
                    reading = reading._replace(value=reading.value + number * (values[-1] - values[0]))
                writer.add([reading._replace(time_ns=reading.time_ns + later)])
            for table in REPEATED[2:]:
                rows = recording.rows(table)
                if table is Mark:
                    rows = [row for row in rows if _is_repeated(row, first=number == 0, last=number == times - 1)]
                writer.add(_later(rows, later))
            writer.commit()
        writer.add(_later(recording.rows(Event), (times - 1) * span))


def _is_repeated(mark: Mark, *, first: bool, last: bool) -> bool:
    """Whether a mark belongs into a repetition: steps begin to count in the first one, and cease to in the last."""
    return mark.what != "observed" or (first if mark.edge == "begin" else last)


def _growth(rows: list[ThreadSample], name: str) -> int:
    values = [value for row in rows if (value := getattr(row, name)) is not None]
    return values[-1] - values[0] if values else 0


def _later(rows: list[Sample], later_ns: int) -> Iterator[Sample]:
    for row in rows:
        moved = {name: getattr(row, name) + later_ns for name in ("time_ns", "until_ns") if name in row._fields}
        yield row._replace(**moved)


def unpacked(recording: Path, folder: Path) -> Path:
    """The recording itself, where it lies packed in the corpus."""
    if recording.suffix != ".xz":
        return recording
    packing.unpack(recording, file := folder / recording.stem)
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="+", metavar="RECORDING")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the long recordings there")
    arguments = parser.parse_args()
    slowest = 0.0
    for given in arguments.recordings:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "long.perfdoctor")
            with closing(Recording.open(unpacked(given, Path(folder)))) as recording:
                lengthen(recording, arguments.minutes, file)
            command = [sys.executable, "-m", "perfdoctor", "report", str(file), "--report", f"{folder}/report.html"]
            begun, before = time.monotonic(), getrusage(RUSAGE_CHILDREN)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took, after = time.monotonic() - begun, getrusage(RUSAGE_CHILDREN)
            used = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
            slowest = max(slowest, took)
            size = file.stat().st_size / 1e6
            print(
                f"{given.name:44} {size:6.0f} MB {took:6.1f} s {used:6.1f} s of CPU {after.ru_maxrss / 1024:6.0f} MiB",
                flush=True,
            )
            if arguments.keep:
                arguments.keep.mkdir(exist_ok=True)
                shutil.copy(file, arguments.keep / f"{given.name.partition('.')[0]}.perfdoctor")
    return int(slowest > TARGET_S)


if __name__ == "__main__":
    sys.exit(main())
