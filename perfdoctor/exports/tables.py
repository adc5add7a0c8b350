"""All that a recording holds as tables, one file for each: CSV or Parquet. ``docs/notebook.md`` lists their columns."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from perfdoctor.errors import PerfDoctorError
from perfdoctor.exports.frames import read_frames
from perfdoctor.recording.reader import Recording


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
