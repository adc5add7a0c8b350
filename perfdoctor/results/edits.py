"""Changes of calls where they stand in the job's own source: its text stays as it is, but for their arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Where there is no call yet, one is put after the imports.
AFTER_IMPORTS = 0
# With more arguments by position, one of them may be what is to be changed.
_FEW_POSITIONS = 5
# Expressions that need no parentheses inside of others.
_WHOLE = (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript)
# What a call refuses beside an argument, by that and its value.
_REFUSED = {
    ("num_workers", "0"): ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"),
    ("fused", "True"): ("foreach",),
}


@dataclass(frozen=True, slots=True)
class Edit:
    """A place in the job's own files at which a change can be made permanent.

    Attributes:
        file: from the job's working folder.
        line: a line of the call.
        call: what is called there: a class or function by its last name.
        arguments: keywords with their values as Python; "" is the name of the only positional argument.
    """

    file: str
    line: int
    call: str
    arguments: Mapping[str, str]


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
    return _replaced(source, changes)


def with_arguments(source: str, names: frozenset[str], arguments: Mapping[str, str]) -> str:
    """A piece of source with other arguments in its call of one of these names; "" where there is not one such call.

    What an argument has now stands for its name in the new value: ``batch_size`` becomes ``2 * 64`` by
    ``2 * batch_size``. Other names are nothing that the source need have.

    Raises:
        SyntaxError: the source is no Python.
    """
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    calls = [call for call in calls if last_name(call.func) in names]
    if len(calls) != 1:
        return ""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in calls[0].keywords if keyword.arg}
    filled = {name: _filled(value, {name: given.get(name)}) for name, value in arguments.items()}
    if any(value is None for value in filled.values()):
        return ""
    changes = _new_arguments(source, calls[0], {name: value for name, value in filled.items() if value is not None})
    return _replaced(source, changes) if changes else ""


def _filled(value: str, given: Mapping[str, str | None]) -> str | None:
    """An expression with what is given in the place of names; None where one of them is not."""
    tree = ast.parse(value, mode="eval")
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    if any(given.get(name.id) is None for name in names):
        return None
    for name in sorted(names, key=lambda one: -one.col_offset):
        now = given[name.id] or ""
        if not isinstance(ast.parse(now, mode="eval").body, _WHOLE):
            now = f"({now})"
        value = value[: name.col_offset] + now + value[name.end_col_offset :]
    return value


def _replaced(source: str, changes: Sequence[tuple[int, int, str]]) -> str:
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
    named = [call for call in calls if last_name(call.func) == edit.call]
    found = named or [call for call in calls if last_name(call.func) == "__init__"]
    return found[0] if len(found) == 1 else None


def last_name(function: ast.expr) -> str:
    """The name of what is called without what it is part of; "" where it has none."""
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
    changes += _without_refused(source, call, arguments)
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


def _without_refused(source: str, call: ast.Call, arguments: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    refused = {name for argument in arguments.items() for name in _REFUSED.get(argument, ())}
    there = sorted([*call.args, *(keyword.value for keyword in call.keywords)], key=lambda one: _span(source, one))
    for keyword in call.keywords:
        before = there.index(keyword.value) - 1
        if keyword.arg in refused and keyword.arg not in arguments and before >= 0:
            yield _span(source, there[before])[1], _span(source, keyword.value)[1], ""


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
