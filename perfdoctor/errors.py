"""What can stop a diagnosis: each error is one clear sentence and the user's next move."""

from __future__ import annotations

from pathlib import Path


class PerfDoctorError(Exception):
    """A diagnosis could not be made.

    Args:
        message: one sentence that says what is wrong.
        hint: one sentence that says what to do next; may be empty.
        recording: the recording that the hint makes use of, and that is therefore kept.
    """

    def __init__(self, message: str, *, hint: str = "", recording: Path | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.recording = recording
