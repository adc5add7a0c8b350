"""A patch for the user's own script: arguments put into the calls that were seen, where they stand in the source."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfdoctor.probes.treated.changes import OF_WORKERS, changes_workers
from perfdoctor.results.edits import AFTER_IMPORTS, Edit, edited
from perfdoctor.treat.situation import Treatment

_NEW_CALLS = {"threads": "torch.set_num_threads"}


def edits_of(treatments: Sequence[Treatment], facts: Sequence[Mapping[str, Any]]) -> tuple[Edit, ...]:
    """The places in the job's own files at which treatments can be made permanent.

    Args:
        treatments: those that are kept.
        facts: what the job has made and called, with the places of the calls.
    """
    arguments: dict[str, dict[str, str]] = {}
    for one in treatments:
        for kind, values in (one.keywords or {}).items():
            arguments.setdefault(kind, {}).update(values)
    side = next((one.change.settings["workers"] for one in treatments if "workers" in one.change.settings), None)
    places = [fact for fact in facts if "file" in fact]
    edits = []
    for kind, values in arguments.items():
        calls = {(fact["file"], fact["line"]): fact for fact in places if fact["kind"] == kind}
        edits += [
            Edit(file, line, fact["name"], values) for (file, line), fact in calls.items() if _fits(fact, values, side)
        ]
        if not calls and kind in _NEW_CALLS:
            files = [fact["file"] for fact in places if fact["kind"] == "optimizer"]
            edits += [Edit(file, AFTER_IMPORTS, _NEW_CALLS[kind], values) for file in files[:1]]
    return tuple(edits)


def _fits(fact: Mapping[str, Any], arguments: Mapping[str, str], side: str | None) -> bool:
    """Whether a call takes these arguments: a loader without workers refuses what is said of them."""
    if fact["kind"] != "loader":
        return True
    workers, number = fact["values"].get("num_workers"), arguments.get("num_workers")
    if not changes_workers(side, workers, None if number is None else int(number)):
        return False
    return bool(workers) or not set(OF_WORKERS).issuperset(arguments)


def make_patch(edits: Iterable[Edit], folder: Path) -> str:
    """A unified diff with the edits, for ``patch -p1`` in the working folder; "" where no place was found again.

    Args:
        edits: of files below the folder.
        folder: the user's working folder.
    """
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.file, []).append(edit)
    return "".join(_diff(name, folder / name, found) for name, found in sorted(by_file.items()))


def _diff(name: str, path: Path, edits: Sequence[Edit]) -> str:
    try:
        before = path.read_text("utf-8")
        after = edited(before, edits)
    except (OSError, UnicodeDecodeError, SyntaxError):
        return ""
    lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(*lines, f"a/{name}", f"b/{name}")
    )
