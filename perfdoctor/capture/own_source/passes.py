"""What a loop of the job's own does once for all rounds of another loop in it, as for each epoch."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from perfdoctor.capture.own_source.syntax import RUN_APART, RUN_ELSEWHERE, Loop, names_given, names_in, yields
from perfdoctor.recording.own_source import SourceOnce
from perfdoctor.results.edits import last_name, written_in

# Statements that are made of others.
_BLOCKS = (ast.If, ast.With, ast.AsyncWith, ast.Try)


def find_once(file: str, tree: ast.Module) -> Iterator[SourceOnce]:
    """What is beside a loop in a loop, and uses nothing of what the outer one goes over.

    That are statements, and functions that are called once, for the inner loop to go over what they return.

    Args:
        file: as stacks name it.
        tree: its syntax.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    returning = _returning(tree)
    for outer in ast.walk(tree):
        if not isinstance(outer, Loop):
            continue
        inside = [node for node in written_in(outer, but=RUN_ELSEWHERE) if isinstance(node, ast.stmt)]
        inner = [node for node in inside if isinstance(node, Loop) and node is not outer]
        if not inner:
            continue
        given = _given(outer, inside)
        nested = {id(node) for loop in inner for node in ast.walk(loop) if node is not loop}
        loops = [loop for loop in inner if id(loop) not in nested]
        for loop in loops:
            for node in inside:
                whole = id(node) not in nested and not isinstance(node, (*RUN_APART, *_BLOCKS))
                if whole and not names_in(node) & given:
                    yield _row(file, node, loop)
            if isinstance(loop, ast.For) and not names_in(loop.iter) & given:
                calls = (call for call in ast.walk(loop.iter) if isinstance(call, ast.Call))
                yield from (
                    _row(file, returning[name], loop) for call in calls if (name := last_name(call.func)) in returning
                )


def _row(file: str, node: ast.stmt, loop: ast.stmt) -> SourceOnce:
    return SourceOnce(file, node.lineno, node.end_lineno or node.lineno, loop.lineno, loop.end_lineno or loop.lineno)


def _returning(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """By name, a file's functions that are no generators, and that are called at one place in it."""
    calls = Counter(last_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and calls[node.name] == 1]
    return {one.name: one for one in functions if not yields(one)}


def _given(loop: ast.For | ast.AsyncFor | ast.While, inside: list[ast.stmt]) -> set[str]:
    """The names of what a round is about: what the loop goes over or counts, and what is made of that."""
    given = _stored([loop, *(one for one in inside if isinstance(one, ast.AugAssign) or _takes_next(one))])
    while (made := _stored(one for one in inside if not isinstance(one, _BLOCKS) and names_in(one) & given)) - given:
        given |= made
    return given


def _stored(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements give values to."""
    return set[str]().union(*map(names_given, statements))


def _takes_next(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "next"
        for one in ast.walk(statement.value)
    )
