"""Calls in the job's own source that advice may change, as they are written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from textwrap import dedent
from typing import NamedTuple

from perfdoctor.capture.redact import mask_source
from perfdoctor.knowledge.own_calls import NAMES
from perfdoctor.results.edits import last_name

# Longer ones are not found again at a glance, and so many calls of a file are enough to know that there are several.
_LINES, _CALLS = 20, 16
# Parsing takes some ten times as long as reading.
_LARGEST = 200_000
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)


class WrittenCall(NamedTuple):
    """A call.

    Attributes:
        line: at which its text begins.
        text: the statement that it stands in where that is a simple one, else the call itself.
        callee: the last name of what is called.
        feeds: the loop in which the job is longest goes over what the call made.
    """

    line: int
    text: str
    callee: str
    feeds: bool


def find_calls(lines: Sequence[str], longest: Sequence[int]) -> Iterator[WrittenCall]:
    """The calls in a file of Python source.

    One with a secret in it is left out: it could not be written down as it stands.

    Args:
        lines: of the file.
        longest: the lines at which the job was, where it was longest first.
    """
    source = "\n".join(lines)
    if len(source) > _LARGEST:
        return
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # of another version of Python, or none
    found = [(statement, call) for statement, call in _calls(tree) if last_name(call.func) in NAMES]
    looped = [names for line in longest for names in _looped_over(tree, line)]
    made = [{ast.unparse(target) for target in getattr(statement, "targets", ())} for statement, _ in found]
    fed = next((names & made_here for names in looped for made_here in made if names & made_here), set[str]())
    for (statement, call), targets in list(zip(found, made, strict=True))[:_CALLS]:
        if text := _text(lines, statement if isinstance(statement, _SIMPLE) else call):
            line = statement.lineno if isinstance(statement, _SIMPLE) else call.lineno
            yield WrittenCall(line, text, last_name(call.func), bool(targets & fed))


def _calls(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """All calls, each with the innermost statement that it is in."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.stmt):
            yield from ((statement, node) for node in _expressions(statement) if isinstance(node, ast.Call))


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """What a statement is made of, without the statements in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield child
            yield from _expressions(child)


def _looped_over(tree: ast.Module, line: int) -> Iterator[set[str]]:
    """The names in what the loops around a line go over, the innermost loop first."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.AsyncFor)]
    around = [loop for loop in loops if loop.lineno <= line <= (loop.end_lineno or loop.lineno)]
    for loop in sorted(around, key=lambda one: -one.lineno):
        yield {ast.unparse(node) for node in ast.walk(loop.iter) if isinstance(node, ast.Name | ast.Attribute)}


def _text(lines: Sequence[str], node: ast.stmt | ast.expr) -> str:
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    if last - first >= _LINES:
        return ""
    masked = mask_source(lines, range(first, last + 1))
    if any(masked[at] != lines[at] for at in masked):
        return ""
    if isinstance(node, ast.stmt):
        return dedent("\n".join(lines[first : last + 1]))
    return ast.get_source_segment("\n".join(lines), node) or ""
