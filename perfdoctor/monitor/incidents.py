"""What happened to a job, by number: what may still change, and what is known of it by now."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace as updated

from perfdoctor.results.history import Happened, Incident

PACE = "pace"  # of incidents that tell of it there is one at a time
# An incident that goes on is reported anew when it has grown by so much.
WORTH = 1.5


class Incidents:
    """All incidents of a history.

    Attributes:
        all: as they are known by now, by number.
    """

    def __init__(self) -> None:
        self.all: dict[int, Incident] = {}
        self._open: dict[object, int] = {}

    def open(self, key: object) -> Incident | None:
        """That of a key, which may still change; None where there is none."""
        return self.all.get(self._open.get(key, 0))

    def close(self, key: object) -> Incident | None:
        """The same, which is over with that: the next one of this key is another one."""
        return self.all.get(self._open.pop(key, 0))

    def put(self, key: object, what: Happened, since: float, values: Mapping[str, float | None]) -> Incident:
        """The open incident of a key with new values, or a new one."""
        number = self._open.setdefault(key, max(self.all, default=0) + 1)
        known = self.all.get(number, Incident(number, what, since))
        self.all[number] = updated(known, what=what, since=since, values=known_of(values))
        return self.all[number]

    def know(self, known: Incident) -> None:
        """Takes an incident that was reported before.

        Of a history that was shortened other incidents may be found than were reported, under the same numbers: they
        are not those that are open.
        """
        found = self.all.get(known.number)
        if found is not None and _kind(found.what) != _kind(known.what):
            self._open = {key: number for key, number in self._open.items() if number != known.number}
        self.all[known.number] = known


def known_of(values: Mapping[str, float | None]) -> dict[str, float]:
    """Those values that are known."""
    return {name: value for name, value in values.items() if value is not None}


def _kind(what: Happened) -> str:
    return PACE if what in (Happened.SLOWER, Happened.FASTER, Happened.DIP) else what.name
