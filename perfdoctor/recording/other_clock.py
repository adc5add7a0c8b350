"""A recording on the clock of another host, on which the same job was watched as well."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Profile, Sample, StackSegment

S = TypeVar("S", bound=Sample)

# Fields that are instants on the one clock.
_INSTANTS = frozenset(("time_ns", "started_ns", "until_ns", "ends_ns", "at_ns"))


class ClockOffset(NamedTuple):
    """How the clock of one host stands to that of another.

    Attributes:
        ahead_ns: by how much it is ahead at ``at_ns``.
        at_ns: an instant on its own clock.
        drift: by how much more it is ahead after each nanosecond.
        error_ns: how far this may be off; None where nothing shows it.
        shared: both are one and the same clock.
    """

    ahead_ns: int = 0
    at_ns: int = 0
    drift: float = 0.0
    error_ns: int | None = 0
    shared: bool = False

    def there(self, time_ns: int) -> int:
        """What the other clock shows when this one shows so much."""
        return time_ns - self.ahead_ns - round(self.drift * (time_ns - self.at_ns))

    @property
    def is_none(self) -> bool:
        """Whether the two always show the same."""
        return not self.ahead_ns and not self.drift


def on_other_clock(recording: Recording, offset: ClockOffset, span: tuple[int, int] | None = None) -> Recording:
    """A recording as it would be had the other host's clock timed it.

    Args:
        recording: as it is; closing the new one closes it.
        offset: of its clock to the other one.
        span: from when to when it is read, on the other clock; None for all of it.
    """
    start_ns, end_ns = span or (offset.there(recording.start_ns), offset.there(recording.end_ns))
    meta = {**recording.meta, "start_ns": str(start_ns)}
    return Recording(recording.path, meta, _Moved(recording, offset), end_ns)


class _Moved:
    """Samples of a recording at other instants."""

    def __init__(self, recording: Recording, offset: ClockOffset) -> None:
        self._recording, self._offset = recording, offset

    def rows(self, kind: type[S]) -> list[S]:
        """As ``Recording.rows``."""
        rows = self._recording.rows(kind)
        fields = [name for name in kind._fields if name in _INSTANTS]
        moves = (fields or kind is Profile) and not self._offset.is_none
        return [self._moved(row, fields) for row in rows] if moves else rows

    def columns(self, kind: type[Sample], *names: str) -> list[list[Any]]:
        """As ``Tables.columns``."""
        columns = self._recording.columns(kind, *names)
        if self._offset.is_none:
            return columns
        return [
            list(map(self._there, column)) if name in _INSTANTS else column
            for name, column in zip(names, columns, strict=True)
        ]

    def left_stacks(self) -> list[StackSegment]:
        """As ``Tables.left_stacks``; those that the recording holds are among them."""
        return [self._moved(one, ["time_ns", "until_ns"]) for one in self._recording.stacks()]

    def lacks(self, kind: type[Sample]) -> bool:
        """As ``Recording.lacks``."""
        return self._recording.lacks(kind)

    def close(self) -> None:
        """Closes the recording."""
        self._recording.close()

    def _moved(self, row: Any, fields: list[str]) -> Any:
        if isinstance(row, Profile):  # what the trace's clock shows when the one clock stands at zero
            return row._replace(epoch_ns=row.epoch_ns - self._offset.there(0))
        return row._replace(**{name: self._there(getattr(row, name)) for name in fields})

    def _there(self, time_ns: int | None) -> int | None:
        return None if time_ns is None else self._offset.there(time_ns)
