"""A language's words for plain English texts: names, units and reasons that are made where no reports are.

Recordings hold such texts, and so do tables of metrics. A phrase is looked up as a whole; ``{}`` in it stands for what
differs, and what stands there is looked up again:

    {"Process {} has just ended.": "进程 {} 刚刚结束。"}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import NamedTuple


class _Template(NamedTuple):
    pattern: re.Pattern[str]
    words: str


class Phrasebook:
    """Looks up English phrases.

    Args:
        phrases: with their words; ``{1}`` in these is the second ``{}`` of the phrase.
    """

    def __init__(self, phrases: Mapping[str, str]) -> None:
        self._whole = {phrase: words for phrase, words in phrases.items() if "{" not in phrase}
        # The one that leaves least open comes first.
        templates = sorted((phrase for phrase in phrases if "{" in phrase), key=len, reverse=True)
        self._templates = [_Template(_pattern(phrase), phrases[phrase]) for phrase in templates]

    def look_up(self, text: str) -> str:
        """The words for a text; the text itself where there are none."""
        if text in self._whole:
            return self._whole[text]
        for pattern, words in self._templates:
            if match := pattern.fullmatch(text):
                return words.format(*map(self.look_up, match.groups()))
        return text


@cache
def phrasebook(package: str) -> Phrasebook:
    """The phrasebook of a catalogue."""
    return Phrasebook(import_module(f"perfdoctor.reports.{package}").PHRASES)


@cache
def commentary(package: str) -> Phrasebook:
    """That for comments in code: as these are written nowhere else, short phrases may leave much open."""
    return Phrasebook(import_module(f"perfdoctor.reports.{package}").COMMENTS)


def _pattern(phrase: str) -> re.Pattern[str]:
    return re.compile("(.*?)".join(map(re.escape, phrase.split("{}"))), re.DOTALL)
