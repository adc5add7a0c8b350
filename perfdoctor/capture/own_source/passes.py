"""What a loop of the job's own does once for all rounds of another loop in it, as for each epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perfdoctor.capture.own_source.syntax import RUN_ELSEWHERE, Loop, names_in, targets_of
from perfdoctor.recording.own_source import SourceOnce
from perfdoctor.results.edits import written_in

# What runs at another time, or in rounds of its own.
_OTHERS = (*RUN_ELSEWHERE, ast.For, ast.AsyncFor, ast.While)
# Statements that are made of others.
_BLOCKS = (ast.If, ast.With, ast.AsyncWith, ast.Try)


def find_once(file: str, tree: ast.Module) -> Iterator[SourceOnce]:
    """Statements beside a loop in a loop that use nothing of what the outer one goes over.

    Args:
        file: as stacks name it.
        tree: its syntax.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    for outer in ast.walk(tree):
        if not isinstance(outer, Loop):
            continue
        inside = [node for node in written_in(outer, but=RUN_ELSEWHERE) if isinstance(node, ast.stmt)]
        given = _given(outer, inside)
        inner = [node for node in inside if isinstance(node, Loop) and node is not outer]
        nested = {id(node) for loop in inner for node in ast.walk(loop) if node is not loop}
        for statement in inside:
            if id(statement) in nested or isinstance(statement, (*_OTHERS, *_BLOCKS)) or names_in(statement) & given:
                continue
            for loop in inner:
                if id(loop) not in nested:
                    yield SourceOnce(file, statement.lineno, _last_line(statement), loop.lineno, _last_line(loop))


def _given(loop: ast.For | ast.AsyncFor | ast.While, inside: list[ast.stmt]) -> set[str]:
    """The names of what a round is about: what the loop goes over or counts, and what is made of that."""
    given = _stored([loop, *(one for one in inside if isinstance(one, ast.AugAssign) or _takes_next(one))])
    while (made := _stored(one for one in inside if not isinstance(one, _BLOCKS) and names_in(one) & given)) - given:
        given |= made
    return given


def _stored(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements give values to."""
    return {name for one in statements for target in targets_of(one) for name in names_in(target)}


def _takes_next(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == next.__name__
        for one in ast.walk(statement.value)
    )


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
