"""Text that must fit into a room: whole items, the most important first, and a word where something was left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perfdoctor.reports.text import clean

# One answer to an agent, all of it. English takes four characters to a token ("What are tokens and how to count them",
# help.openai.com); code, paths and numbers take fewer, so that three bytes of UTF-8 are counted as one.
TOKENS, BYTES_PER_TOKEN = 2000, 3
ROOM = TOKENS * BYTES_PER_TOKEN
# A sentence, a path or a name; what is longer was not written for people.
LONGEST, LONGEST_NAME = 600, 160
_CUT = " […]"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a text.

    Attributes:
        heading: a line above it; "" for none.
        items: what it says, the most important first; each stays whole or is left out.
        rest: what is said where items are left out: a line.
    """

    heading: str
    items: tuple[str, ...]
    rest: str = _CUT.strip()


def size(text: str) -> int:
    """How much room a text takes, in bytes of UTF-8."""
    return len(text.encode("utf-8", errors="replace"))


def size_of_values(values: Mapping[str, Any]) -> int:
    """How much room values take as JSON."""
    return size(json.dumps(values, ensure_ascii=False))


def shortened(value: Any) -> Any:
    """A value, with whatever text is in it short enough for a name."""
    if isinstance(value, dict):
        return {name: shortened(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shortened(one) for one in value]
    return short(value, LONGEST_NAME) if isinstance(value, str) else value


def trimmed(values: dict[str, Any], room: int) -> dict[str, Any]:
    """Values that fit into a room in bytes: items are left out at the end of whichever of their lists is longest."""
    lists = [value for value in values.values() if isinstance(value, list)]
    while size_of_values(values) > room and any(lists):
        max(lists, key=lambda one: size(json.dumps(one, ensure_ascii=False))).pop()
    return values


def fitted(sections: Iterable[Section], room: int) -> str:
    """The sections as text, each from its beginning as far as there is room.

    Args:
        sections: the most important first.
        room: in bytes.
    """
    sections = [section for section in sections if section.items]
    # What is said where something is left out has its room anyway.
    room -= sum(size(section.rest) + 1 for section in sections)
    lines: list[str] = []
    for section in sections:
        head = [section.heading] if section.heading else []
        for item in section.items:
            block = [*head, item]
            taken = sum(size(line) + 1 for line in block)
            if taken > room:
                lines.append(section.rest)
                break
            lines += block
            room -= taken
            head = []
    return "\n".join(lines)


def short(text: str, longest: int = LONGEST) -> str:
    """One clean line, cut behind a word where it is too long, and marked there."""
    text = clean(text)
    if size(text) <= longest:
        return text
    kept = text.encode("utf-8", errors="replace")[: longest - size(_CUT)].decode("utf-8", errors="ignore")
    whole, blank, _ = kept.rpartition(" ")
    return (whole if blank and size(whole) > longest // 3 else kept) + _CUT


def short_lines(*texts: str) -> tuple[str, ...]:
    """Each of the texts that says something, as one line."""
    return tuple(short(text) for text in texts if text)
