"""Where a loop of the job's own does something in every n-th of its rounds only."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfdoctor.capture.own_source.calls import text_of
from perfdoctor.capture.own_source.syntax import RUN_APART, Loop
from perfdoctor.recording.own_source import SourceRounds
from perfdoctor.results.edits import written_in


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
        if not isinstance(loop, Loop):
            continue
        for node in written_in(loop, but=RUN_APART):
            if not (isinstance(node, ast.If) and _asks_remainder(node.test) and text_of(lines, node.test)):
                continue
            where, when = _chosen(loop.body, node)
            if where:
                last_line = where[-1].end_lineno or where[-1].lineno
                yield SourceRounds(file, where[0].lineno, last_line, loop.lineno, loop.end_lineno or last_line, when)


def _asks_remainder(test: ast.expr) -> bool:
    """Whether a condition has a remainder in it; ``%`` of a text puts something into it."""
    return any(
        isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) and not isinstance(one.left, ast.JoinedStr)
        and not (isinstance(one.left, ast.Constant) and isinstance(one.left.value, str))
        for one in ast.walk(test)
    )  # fmt: skip


def _chosen(body: list[ast.stmt], choice: ast.If) -> tuple[list[ast.stmt], str]:
    """What a condition chooses the rounds of, and which these are; of a ``continue`` below others it is not known."""
    when = ast.unparse(choice.test)
    if not isinstance(choice.body[-1], ast.Continue):
        return choice.body, when
    return body[body.index(choice) + 1 :] if choice in body else [], f"not ({when})"
