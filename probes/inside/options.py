"""What a user may ask of ``diagnose()``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wishes:
    """What the user asked for.

    Attributes:
        steps: how many steps to observe after the warm-up; None to observe for 15 seconds, and at least 10
            steps.
        warmup: how many steps to leave out at the beginning.
        report: where to write the HTML report; None for none.
        json: where to write the JSON report; None for none.
        recording: where to keep the recording; None to throw it away.
        profile: how many steps to profile after those; None for a few, 0 for none.
        confirm: whether to make a trial with a batch that is kept in memory.
        serialise: whether to serialise the phases of a few steps, where there is a device or more than one rank.
    """

    steps: int | None = None
    warmup: int = 3
    report: str | None = "perfdoctor-report.html"
    json: str | None = None
    recording: str | None = None
    profile: int | None = None
    confirm: bool = False
    serialise: bool = True
