"""Of many ranks: which a report shows one by one, and where those are that hold the others back."""

from __future__ import annotations

from typing import Any

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.text import clean
from perfdoctor.reports.wording import label
from perfdoctor.results.crowd import Crowd


def shown_ranks(diagnosis: Diagnosis) -> tuple[dict[str, Any], ...]:
    """The ranks that a report shows one by one: none if there is one, all of few, and of many those that matter."""
    crowd = diagnosis.crowd
    if crowd is None:
        return diagnosis.ranks if len(diagnosis.ranks) > 1 else ()
    numbers = [rank for rank, _ in crowd.matter] or [group.ranks[0] for group in crowd.groups]
    by_number = {rank["rank"]: rank for rank in diagnosis.ranks}
    return tuple(by_number[number] for number in numbers if number in by_number)


def late_place(crowd: Crowd | None) -> str:
    """Where those are that hold the others back, in a sentence, if it is more than one rank; "" if it is no place."""
    if crowd is not None and crowd.late_host:
        return label("late_host", host=clean(crowd.late_host))
    if crowd is not None and crowd.late_position is not None:
        return label("late_position", position=crowd.late_position)
    return ""
