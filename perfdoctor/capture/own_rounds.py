"""Where a loop of the job's own does something in every n-th of its rounds only."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfdoctor.capture.own_calls import text_of
from perfdoctor.recording.own_source import SourceRounds
from perfdoctor.results.edits import written_in

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
# What runs at another time, or in rounds of its own.
_OTHERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, *_LOOPS)


def find_rounds(file: str, tree: ast.Module, lines: Sequence[str]) -> Iterator[SourceRounds]:
    """Lines of loops for which a remainder chooses the rounds: below ``if step % 4 == 0``, or behind its ``continue``.

    Args:
        file: as stacks name it.
        tree: its syntax.
        lines: of it; a condition with a secret in it is left out.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    for loop in ast.walk(tree):
        if not isinstance(loop, _LOOPS):
            continue
        for node in written_in(loop, but=_OTHERS):
            if isinstance(node, ast.If) and _asks_remainder(node.test) and text_of(lines, node.test):
                where, when = node.body, ast.unparse(node.test)
                if isinstance(where[-1], ast.Continue):
                    where, when = _behind(loop.body, node), f"not ({when})"
                if where:
                    last_line = where[-1].end_lineno or where[-1].lineno
                    yield SourceRounds(
                        file, where[0].lineno, last_line, loop.lineno, loop.end_lineno or last_line, when
                    )


def _asks_remainder(test: ast.expr) -> bool:
    """Whether a condition has a remainder in it; ``%`` of a text puts something into it."""
    return any(
        isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) and not isinstance(one.left, ast.JoinedStr)
        and not (isinstance(one.left, ast.Constant) and isinstance(one.left.value, str))
        for one in ast.walk(test)
    )  # fmt: skip


def _behind(body: list[ast.stmt], statement: ast.stmt) -> list[ast.stmt]:
    """What follows a statement of a body; nothing where it stands deeper."""
    return body[body.index(statement) + 1 :] if statement in body else []
