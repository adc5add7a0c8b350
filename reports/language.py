"""Which language reports are in, the one that was asked for or that of the user's locale, and who reads the next move.

Both are set once, the language where a command begins, and hold for all that is made within:

    with language("zh"):
        print(console.render(diagnosis, width=100, color=False))

A context variable carries each to the words, so nothing between the command and a sentence has to hand it on, and two
threads or tasks can speak two languages. A next move is for somebody at a command line, or for an agent that has the
tools of `perfdoctor mcp`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TextIO

ENGLISH = "en"


class Catalogue(NamedTuple):
    """Where the words of a language are.

    Attributes:
        package: in ``perfdoctor.reports``.
        letter: one that it cannot do without.
    """

    package: str
    letter: str


LANGUAGES = {ENGLISH: Catalogue("english", "e"), "zh": Catalogue("chinese", "中")}


class Choice(NamedTuple):
    """A language and whether the user named it, which programs that read a report must be able to rely on."""

    code: str
    asked: bool


_UNSAID = Choice(ENGLISH, asked=False)
_current: ContextVar[Choice] = ContextVar("language", default=_UNSAID)


def catalogue() -> Catalogue:
    """That of the language which holds here."""
    return LANGUAGES[_current.get().code]


def spoken() -> str:
    """The code of the language which holds here."""
    return _current.get().code


@contextmanager
def language(code: str, asked: bool = True) -> Iterator[None]:
    """Makes all reports within in one language.

    Args:
        code: ``en`` or ``zh``.
        asked: the user named it; what is written for programs stays in English otherwise.

    Raises:
        KeyError: there is no such language.
    """
    LANGUAGES[code]
    token = _current.set(Choice(code, asked))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def for_programs() -> Iterator[None]:
    """English within, unless another language was asked for: a program reads the same text whatever the locale."""
    with language(*(_current.get() if _current.get().asked else _UNSAID)):
        yield


@contextmanager
def for_stream(stream: TextIO, *, quietly: bool = False) -> Iterator[None]:
    """English within, if the stream's encoding lacks the letters of the language.

    Args:
        stream: what is written to.
        quietly: otherwise that is said on stderr, if the language was asked for.
    """
    if can_write(catalogue().letter, stream.encoding or "ascii"):
        yield
        return
    if _current.get().asked and not quietly:
        print(
            f"perfdoctor: The encoding {stream.encoding} cannot show {_current.get().code}, so this is in English; "
            "PYTHONIOENCODING=utf-8 changes that.",
            file=sys.stderr,
        )
    with language(ENGLISH, asked=_current.get().asked):
        yield


def choice(asked: str | None, environment: Mapping[str, str]) -> Choice:
    """The language that was asked for, or else that of the locale; English where there are no words for that one.

    POSIX has the order: LC_ALL overrules LC_MESSAGES, which overrules LANG, and an empty one counts as unset
    (Base Definitions, 8.2, Internationalization Variables).
    """
    if asked is not None:
        return Choice(asked, asked=True)
    locale = next(filter(None, map(environment.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    code = locale.partition(".")[0].partition("@")[0].partition("_")[0].lower()
    return Choice(code if code in LANGUAGES else ENGLISH, asked=False)


def can_write(text: str, encoding: str) -> bool:
    """Whether an encoding has all characters of a text."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


_agent: ContextVar[bool] = ContextVar("agent", default=False)


@contextmanager
def for_agents() -> Iterator[None]:
    """Next moves within are those of an agent with tools."""
    token = _agent.set(True)
    try:
        yield
    finally:
        _agent.reset(token)


def either(command: str, *, tool: str) -> str:
    """What is said at a command line, or of the tools."""
    return tool if _agent.get() else command
