"""Which cause has which colour, the same all over a page.

Colours are classes; the style sheet has the values. Bottlenecks take the six colours besides black and ``ok`` of
Okabe and Ito's palette, which people with any common colour blindness can distinguish (Okabe, Ito: Color Universal
Design, 2008, jfly.uni-koeln.de/color); ``ok`` is its bluish green. No picture says anything by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from perfdoctor.causes import CAUSES, UNATTRIBUTED

COLORS = 6  # as the style sheet has


class Palette:
    """Classes of causes.

    Args:
        causes: those of the report, in the order in which they get colours; ids may come several times.
    """

    def __init__(self, causes: Iterable[str]) -> None:
        colored = [cause for cause in dict.fromkeys(causes) if cause in CAUSES and not _is_plain(cause)]
        self._numbers = {cause: number for number, cause in enumerate(colored[:COLORS])}

    def of(self, cause: str) -> str:
        """The class of a cause: ``b0`` to ``b5``, ``ok``, ``rest``; ``idle`` for none, ``more`` without a colour."""
        if not cause:
            return "idle"
        if cause == UNATTRIBUTED:
            return "rest"
        if cause in CAUSES and CAUSES[cause].healthy:
            return "ok"
        return f"b{self._numbers[cause]}" if cause in self._numbers else "more"


def _is_plain(cause: str) -> bool:
    return cause == UNATTRIBUTED or CAUSES[cause].healthy
