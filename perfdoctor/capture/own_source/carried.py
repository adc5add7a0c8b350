"""Where a loop's backward pass goes through all rounds before it, since what is carried along keeps its graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfdoctor.capture.own_source.syntax import RUN_ELSEWHERE, Loop, names_in, targets_of
from perfdoctor.knowledge.libraries import BACKWARD, DETACHES
from perfdoctor.results.edits import last_name, written_in

_KEEPS_GRAPH = "retain_graph"
# What cuts a graph.
_CUTS = DETACHES | {"data"}


def find_carried(tree: ast.Module) -> Iterator[tuple[ast.stmt, tuple[str, ...]]]:
    """Statements with the one backward pass of a loop that keeps its graph, and what carries that to the next round.

    A recurrent state is such: ``hidden = cell(batch, hidden)``. Nothing in the loop cuts it.

    Args:
        tree: the syntax of a file.
    """
    for loop in (node for node in ast.walk(tree) if isinstance(node, Loop)):
        inside = [node for node in written_in(loop, but=(*RUN_ELSEWHERE, ast.For, ast.While)) if node is not loop]
        passes = [node for node in inside if isinstance(node, ast.Expr) and _begins_pass(node.value)]
        if len(passes) != 1 or not _keeps_graph(passes[0]):
            continue
        carried = [name for node in inside if isinstance(node, ast.Assign) for name in _carried(node)]
        cuts = (node for node in inside if isinstance(node, ast.Attribute) and node.attr in _CUTS)
        cut = {name for node in cuts for name in names_in(node)}
        if names := [name for name in dict.fromkeys(carried) if name not in cut]:
            yield passes[0], (names[0],)


def _begins_pass(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) == BACKWARD


def _keeps_graph(statement: ast.Expr) -> bool:
    given = statement.value.keywords if isinstance(statement.value, ast.Call) else []
    return any(one.arg == _KEEPS_GRAPH and not _is_false(one.value) for one in given)


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _carried(statement: ast.Assign) -> Iterator[str]:
    """The names that a call is given and gets back."""
    if isinstance(statement.value, ast.Call):
        stored = {name for target in targets_of(statement) for name in names_in(target)}
        given = {name for one in statement.value.args for name in names_in(one)}
        yield from sorted(stored & given)
