"""A patch for the user's own script: arguments put into the calls that were seen, where they stand in the source."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfdoctor.probes.treated.changes import OF_WORKERS
from perfdoctor.results.treatment import Edit
from perfdoctor.treat.situation import Treatment

# Where there is no call yet, one is put after the imports.
AFTER_IMPORTS = 0
_NEW_CALLS = {"threads": "torch.set_num_threads"}
# With more arguments by position, one of them may be what is to be changed.
_FEW_POSITIONS = 5


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
    places = [fact for fact in facts if "file" in fact]
    edits = []
    for kind, values in arguments.items():
        calls = {(fact["file"], fact["line"]): fact for fact in places if fact["kind"] == kind}
        edits += [Edit(file, line, fact["name"], values) for (file, line), fact in calls.items() if _fits(fact, values)]
        if not calls and kind in _NEW_CALLS:
            files = [fact["file"] for fact in places if fact["kind"] == "optimizer"]
            edits += [Edit(file, AFTER_IMPORTS, _NEW_CALLS[kind], values) for file in files[:1]]
    return tuple(edits)


def _fits(fact: Mapping[str, Any], arguments: Mapping[str, str]) -> bool:
    """Whether a call takes these arguments: a loader without workers refuses what is said of them."""
    without = fact["kind"] == "loader" and not fact["values"].get("num_workers")
    return not without or not set(OF_WORKERS).issuperset(arguments)


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


def edited(source: str, edits: Sequence[Edit]) -> str:
    """The source with the edits for which a place was found.

    Raises:
        SyntaxError: the source is no Python.
    """
    tree = ast.parse(source)
    changes: list[tuple[int, int, str]] = []
    for edit in edits:
        if edit.line == AFTER_IMPORTS:
            changes += _new_call(source, tree, edit)
        elif call := _find(tree, edit):
            changes += _new_arguments(source, call, edit.arguments)
    # From the end, so that what stands before keeps its place.
    for begin, end, text in sorted(changes, reverse=True):
        source = source[:begin] + text + source[end:]
    ast.parse(source)
    return source


def _find(tree: ast.Module, edit: Edit) -> ast.Call | None:
    """The call of an edit: of those around its line the one of that name, or of a base class's constructor."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= edit.line <= (node.end_lineno or node.lineno)
    ]
    named = [call for call in calls if _last_name(call.func) == edit.call]
    found = named or [call for call in calls if _last_name(call.func) == "__init__"]
    return found[0] if len(found) == 1 else None


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _new_arguments(source: str, call: ast.Call, arguments: Mapping[str, str]) -> list[tuple[int, int, str]]:
    """Pieces of the source to replace: begin, end and the new text."""
    if "" in arguments:
        if len(call.args) != 1 or call.keywords:
            return []
        return [(*_span(source, call.args[0]), arguments[""])]
    if len(call.args) > _FEW_POSITIONS:
        return []
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    changes = [(*_span(source, given[name]), value) for name, value in arguments.items() if name in given]
    missing = {name: value for name, value in arguments.items() if name not in given}
    if not missing:
        return changes
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    if unpacked:
        # What is unpacked may hold the same names; those that come last count.
        begin, end = _span(source, unpacked[-1])
        added = "".join(f", {name!r}: {value}" for name, value in missing.items()).replace("'", '"')
        return [*changes, (begin, end, f"{{**{source[begin:end]}{added}}}")]
    last = max([*call.args, *(keyword.value for keyword in call.keywords)], key=lambda one: _span(source, one)[1])
    end = _span(source, last)[1]
    return [*changes, (end, end, "".join(f", {name}={value}" for name, value in missing.items()))]


def _new_call(source: str, tree: ast.Module, edit: Edit) -> list[tuple[int, int, str]]:
    """A call after the imports at the top of the file, where the module is imported under its own name."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names if not alias.asname}
    if edit.call.partition(".")[0] not in names:
        return []
    line = max(node.end_lineno or node.lineno for node in imports)
    end = sum(map(len, source.splitlines(keepends=True)[:line]))
    return [(end, end, f"\n{edit.call}({edit.arguments['']})\n")]


def _span(source: str, node: ast.expr) -> tuple[int, int]:
    """Where an expression stands in the source, in characters; the tree counts bytes of UTF-8."""
    lines = source.splitlines(keepends=True)

    def place(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
