"""Where a loop's backward pass goes through all rounds before it, since what is carried along keeps its graph."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from perfdoctor.capture.own_source.syntax import RUN_ELSEWHERE, Loop, names_given, names_in
from perfdoctor.knowledge.libraries import BACKWARD, DETACHES
from perfdoctor.results.edits import last_name, written_in

_KEEPS_GRAPH = "retain_graph"
# What cuts a graph.
_CUTS = DETACHES | {"data"}


def find_carried(tree: ast.Module) -> Iterator[tuple[ast.stmt, tuple[str, ...]]]:
    """Statements with the one backward pass of a loop that keeps its graph, and what carries that to the next round.

    A recurrent state is such, ``hidden = cell(batch, hidden)``, or a sum of losses that the pass begins at. Nothing in
    the loop cuts it or gives it another value.

    Args:
        tree: the syntax of a file.
    """
    for loop in (node for node in ast.walk(tree) if isinstance(node, Loop)):
        inside = [node for node in written_in(loop, but=(*RUN_ELSEWHERE, ast.For, ast.While)) if node is not loop]
        passes = [node for node in inside if isinstance(node, ast.Expr) and _begins_pass(node.value)]
        if len(passes) != 1 or not _keeps_graph(passes[0]):
            continue
        begins_at = names_in(passes[0])
        carried = [name for node in inside for name in _carried(node, begins_at)]
        cuts = (node for node in inside if isinstance(node, ast.Attribute) and node.attr in _CUTS)
        anew = {name for node in (loop, *inside) for name in _given_anew(node)}
        cut = anew.union(*map(names_in, cuts))
        if names := [name for name in dict.fromkeys(carried) if name not in cut]:
            yield passes[0], (names[0],)


def _begins_pass(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) == BACKWARD


def _keeps_graph(statement: ast.Expr) -> bool:
    given = statement.value.keywords if isinstance(statement.value, ast.Call) else []
    return any(one.arg == _KEEPS_GRAPH and not _is_false(one.value) for one in given)


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _carried(node: ast.AST, begins_at: Collection[str]) -> list[str]:
    """The names that get a value made of their own one: by a call that is given it, or by adding to it.

    Args:
        node: a statement of the loop, or a part of one.
        begins_at: where the pass begins; other sums are for whoever reads them.
    """
    stored = names_given(node)
    match node:
        case ast.Assign(value=ast.Call(args=given)):
            return sorted(stored & {name for one in given for name in names_in(one)})
        case ast.Assign(value=ast.BinOp() as value):
            return sorted(stored & names_in(value) & {*begins_at})
        case ast.AugAssign():
            return sorted(stored & {*begins_at})
    return []


def _given_anew(node: ast.AST) -> set[str]:
    """The names that get a value which is not made of their own one."""
    if isinstance(node, ast.AugAssign):
        return set()
    return names_given(node) - (names_in(node.value) if isinstance(node, ast.Assign) else set())
