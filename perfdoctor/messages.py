"""What is to be said to a reader, in no language yet: ``perfdoctor.reports`` has the words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """One thing that a report says.

    Attributes:
        id: module and function of its words, ``io.save_behind`` for instance.
        values: what it says, by name: plain values, evidence, other messages, or tuples of these.
    """

    id: str
    values: tuple[tuple[str, Any], ...] = ()


# What people read: a message, or plain text where perfdoctor did not write it (a user's rule, a probe's reason).
Text = str | Message


def say(what: str, /, **values: Any) -> Message:
    """A message with its values."""
    return Message(what, tuple(values.items()))
