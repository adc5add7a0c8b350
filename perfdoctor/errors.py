"""What can stop a diagnosis: each error is one clear sentence and the user's next move."""


class PerfDoctorError(Exception):
    """A diagnosis could not be made.

    Args:
        message: one sentence that says what is wrong.
        hint: one sentence that says what to do next; may be empty.
    """

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(PerfDoctorError):
    """The command line cannot be understood."""

    exit_status = 2
