"""A language's words for plain English texts: names, units and reasons that are made where no reports are.

Recordings hold such texts, and so do tables of metrics. A phrase is looked up as a whole; ``{}`` in it stands for what
differs, and what stands there is looked up again:

    {"Process {} has just ended.": "进程 {} 刚刚结束。"}

Where several reasons or remedies were run together, each is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module

# How far texts in texts go: a probe's reason with what denies it the right, and the command that grants that.
_DEEPEST = 3
_OPEN = "{}"
_END = re.compile(r"(?<=[.;]) ")
_MOST_PARTS = 8  # a stranger's text may have any number


class Phrasebook:
    """Looks up English phrases, in a time that grows with the length of a text only: it may come from a stranger.

    Args:
        phrases: with their words; ``{1}`` in these is the second ``{}`` of the phrase.
    """

    def __init__(self, phrases: Mapping[str, str]) -> None:
        self._whole = {phrase: words for phrase, words in phrases.items() if _OPEN not in phrase}
        # The one that leaves least open comes first.
        self._open = [
            (phrase.split(_OPEN), phrases[phrase])
            for phrase in sorted(phrases, key=len, reverse=True)
            if _OPEN in phrase
        ]

    def look_up(self, text: str) -> str:
        """The words for a text; the text itself where there are none."""
        return self._look_up(text, 0)

    def _look_up(self, text: str, depth: int) -> str:
        found = self._phrase(text, depth)
        if found is not None:
            return found
        parts = _END.split(text) if depth < _DEEPEST else []
        if not 1 < len(parts) <= _MOST_PARTS:
            return text
        said = ""
        while parts:
            count, words = self._longest(parts, depth)
            said, parts = said + words, parts[count:]
        return said.rstrip()

    def _longest(self, parts: list[str], depth: int) -> tuple[int, str]:
        """How many of some parts are one phrase, and its words; the first one as it is where there is none."""
        for count in range(len(parts), 0, -1):
            text = " ".join(parts[:count])
            found = self._phrase(text.removesuffix(";"), depth + 1)
            if found is not None:
                return count, found + text[len(text.removesuffix(";")) :]
        return 1, parts[0] + " "

    def _phrase(self, text: str, depth: int) -> str | None:
        """The words for a text that is one phrase; None where there are none."""
        if text in self._whole:
            return self._whole[text]
        if depth < _DEEPEST:
            for pieces, words in self._open:
                differs = _between(pieces, text)
                if differs is not None:
                    return words.format(*(self._look_up(one, depth + 1) for one in differs))
        return None


@cache
def phrasebook(package: str) -> Phrasebook:
    """The phrasebook of a catalogue."""
    return Phrasebook(import_module(f"perfdoctor.reports.{package}.phrasebook").PHRASES)


@cache
def commentary(package: str) -> Phrasebook:
    """That for comments in code: as these are written nowhere else, short phrases may leave much open."""
    return Phrasebook(import_module(f"perfdoctor.reports.{package}.phrasebook").COMMENTS)


def _between(pieces: list[str], text: str) -> list[str] | None:
    """What stands between the pieces of a phrase, each as early as it can be; None if the text has not all of them."""
    begin, *middle, end = pieces
    at, last = len(begin), len(text) - len(end)
    if at > last or not (text.startswith(begin) and text.endswith(end)):
        return None
    found = []
    for piece in middle:
        place = text.find(piece, at, last)
        if place < 0:
            return None
        found.append(text[at:place])
        at = place + len(piece)
    return [*found, text[at:last]]
