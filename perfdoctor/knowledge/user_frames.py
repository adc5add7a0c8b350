"""Frames of libraries that users add, read from a TOML file; ``docs/frames.md`` describes it.

The file is the one that ``PERFDOCTOR_FRAMES`` names, or else ``perfdoctor/frames.toml`` in the folder of a user's
settings (``XDG_CONFIG_HOME``, or ``~/.config``). One mistake, and none of its rows counts: half of what was meant would
be harder to notice.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from perfdoctor.knowledge.frames import PHASES, FrameMeaning, meaning

VARIABLE = "PERFDOCTOR_FRAMES"
HINT = "correct it: a row is [[frame]] with file = 'mylib/io\\.py', functions = ['save'], phase = 'saving'"
DETAILS = ("fetch", "hand over", "loader start", "sampling", "collective", "compile")
_KEYS = ("file", "functions", "phase", "detail", "waits")


@dataclass(frozen=True, slots=True)
class UserFrames:
    """What the file says.

    Attributes:
        rows: frames that decide a phase wherever they stand.
        waiting: frames that may wait when they are innermost.
        problem: one sentence about why none of its rows count; "" if they do, or if there is no file.
    """

    rows: tuple[FrameMeaning, ...] = ()
    waiting: tuple[FrameMeaning, ...] = ()
    problem: str = ""


def user_frames() -> UserFrames:
    """What the user's file says now."""
    named = os.environ.get(VARIABLE)
    path = named or os.path.join(
        os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "perfdoctor", "frames.toml"
    )
    try:
        changed_ns = os.stat(path).st_mtime_ns
    except OSError as error:
        problem = f"{VARIABLE} names {path}, which cannot be read: {error.strerror}." if named else ""
        return UserFrames(problem=problem)
    return _read(path, changed_ns)


@lru_cache(maxsize=4)
def _read(path: str, changed_ns: int) -> UserFrames:
    """Read anew when the file has changed."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return _parse(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        return UserFrames(problem=f"{path} cannot be read: {error.strerror}.")
    except ValueError as error:  # also of TOML and of UTF-8
        mistake = " ".join(str(error).split())
        return UserFrames(problem=f"None of the frames in {path} count: {mistake}.")


def _parse(document: dict[str, Any]) -> UserFrames:
    rows = document.pop("frame", [])
    if document:
        raise ValueError(f"it has {_listed(document)} beside its [[frame]] rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("its rows are not [[frame]] tables")
    found = [(_meaning(row, f"row {number}"), row.get("waits", False)) for number, row in enumerate(rows, 1)]
    return UserFrames(
        rows=tuple(one for one, _ in found if one.phase),
        waiting=tuple(one for one, waits in found if waits),
    )


def _meaning(row: dict[str, Any], where: str) -> FrameMeaning:
    """One row.

    Raises:
        ValueError: what is wrong with it.
    """
    if unknown := [key for key in row if key not in _KEYS]:
        raise ValueError(f"{where} has {_listed(unknown)}; a row has {_listed(_KEYS)}")
    file, functions = row.get("file"), row.get("functions", [])
    phase, detail, waits = row.get("phase", ""), row.get("detail", ""), row.get("waits", False)
    if not isinstance(file, str) or not file:
        raise ValueError(f"{where} has no file")
    if not isinstance(functions, list) or not all(isinstance(name, str) and name.isidentifier() for name in functions):
        raise ValueError(f"functions of {where} is no list of names without classes")
    if not isinstance(waits, bool):
        raise ValueError(f"waits of {where} is neither true nor false")
    if "phase" in row and phase not in PHASES:
        raise ValueError(f"phase of {where} is {phase!r}, and none of {_listed(PHASES)}")
    if "detail" in row and detail not in DETAILS:
        raise ValueError(f"detail of {where} is {detail!r}, and none of {_listed(DETAILS)}")
    if not phase and not waits:
        raise ValueError(f"{where} has neither a phase nor waits = true")
    try:
        return meaning(file, " ".join(functions), phase, detail or ("fetch" if phase == "data" else ""))
    except re.error as error:
        raise ValueError(f"file of {where} is no regular expression: {error}") from None


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))
