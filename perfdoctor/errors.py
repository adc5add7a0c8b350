"""What can stop a diagnosis: each error is one clear sentence and the user's next move."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfdoctor.messages import Text


class PerfDoctorError(Exception):
    """A diagnosis could not be made.

    Args:
        message: one sentence that says what is wrong.
        hint: one sentence that says what to do next, or the message that is worded where it is read; may be empty.
        recording: the recording that the hint makes use of, and that is therefore kept.

    Attributes:
        next_move: the hint as it was given.
    """

    def __init__(self, message: str, *, hint: Text = "", recording: Path | None = None) -> None:
        super().__init__(message)
        self.next_move: Text = hint
        self.recording = recording

    @property
    def hint(self) -> str:
        """What to do next, in words for whoever reads it: at a command line there are others than for an agent."""
        if isinstance(self.next_move, str):
            return self.next_move
        from perfdoctor.reports.wording import worded

        return worded(self.next_move)
