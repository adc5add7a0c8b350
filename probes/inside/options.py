"""What a user may ask of ``diagnose()``, checked."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from operator import index
from pathlib import Path

# Those of ``perfdoctor.reports.language``, which is not loaded into the job.
LANGUAGES = ("en", "zh")
# What ``treat`` may be besides false and true: changes whose results are rounded differently are tried as well.
WITHIN_NOISE = "within noise"


@dataclass
class Options:
    """What the user asked for; files become absolute paths, since the script may change its folder later.

    Attributes:
        steps: how many steps to observe after the warm-up; None to observe for 15 seconds, and at least 10
            steps.
        warmup: how many steps to leave out at the beginning.
        report: where to write the HTML report; None for none.
        json: where to write the JSON report; None for none.
        recording: where to keep the recording; None to throw it away.
        profile: how many steps to profile after those; None for a few, 0 for none.
        confirm: whether to repeat a batch that is kept in memory, to measure what the input costs.
        serialise: whether to isolate the phases of a few steps, where there is a device or more than one rank.
        lang: language of the reports; None for that of the locale.
        source: whether to read the source around the lines that cost most.
        treat: whether to try changes between steps, and whether those too that are not the same to the last bit.
        treat_minutes: for how long at most.

    Raises:
        ValueError: a value is of another kind, or too small.
    """

    steps: int | None = None
    warmup: int = 3
    report: str | os.PathLike[str] | None = "perfdoctor-report.html"
    json: str | os.PathLike[str] | None = None
    recording: str | os.PathLike[str] | None = None
    profile: int | None = None
    confirm: bool = False
    serialise: bool = True
    lang: str | None = None
    source: bool = True
    treat: bool | str = False
    treat_minutes: float = 3.0

    def __post_init__(self) -> None:
        self.steps = _count("steps", self.steps, 1)
        self.warmup = _count("warmup", self.warmup, 0) or 0
        self.report = _absolute("report", self.report)
        self.json = _absolute("json", self.json)
        self.recording = _absolute("recording", self.recording)
        self.profile = _count("profile", self.profile, 0)
        if self.treat not in (False, True, WITHIN_NOISE):
            raise ValueError(f"treat={self.treat!r} is unknown; write True, False or {WITHIN_NOISE!r}.")
        if not isinstance(self.treat_minutes, (int, float)) or not 0 < self.treat_minutes < math.inf:
            raise ValueError(f"treat_minutes={self.treat_minutes!r} is no number of minutes; write one above 0.")
        if self.lang not in (None, *LANGUAGES):
            raise ValueError(f"lang={self.lang!r} is no language of the reports; write {' or '.join(LANGUAGES)}.")


def _count(name: str, value: int | None, least: int) -> int | None:
    try:
        count = None if value is None else index(value)  # numpy's numbers as well
    except TypeError:
        count = -1
    if count is not None and count < least:
        raise ValueError(f"{name}={value!r} is no number of steps; write a whole number, {least} or more.")
    return count


def _absolute(name: str, path: str | os.PathLike[str] | None) -> str | None:
    """False is taken for None, as people write it."""
    try:
        return str(Path(path).absolute()) if path else None
    except TypeError:
        raise ValueError(f"{name}={path!r} is no path; write the name of a file, or None for none.") from None
    except OSError as error:
        raise ValueError(f"the current folder is gone: {error.strerror}.") from None
