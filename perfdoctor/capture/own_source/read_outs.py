"""Functions of the job's own source that only read values out of tensors: as hooks they are no part of a model.

A hook may as well change what a module puts out, set its weights, keep a part of the loss, or update parameters. So one
counts only where nothing of the tensors that it is given leaves it but numbers, and none is changed.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from perfdoctor.capture.own_source.syntax import Function, arguments, is_in_place, names_stored, targets_of
from perfdoctor.knowledge.libraries import DESCRIBES, IN_PLACE, READS_OUT
from perfdoctor.recording.own_source import SourceReadOut
from perfdoctor.results.edits import last_name, written_in

_Assignment = ast.Assign | ast.AugAssign | ast.AnnAssign


def find_read_outs(file: str, tree: ast.Module) -> list[SourceReadOut]:
    """Functions that return nothing, read values out, and leave nothing else behind.

    Args:
        file: as stacks name it.
        tree: its syntax.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    functions = (node for node in ast.walk(tree) if isinstance(node, Function))
    return sorted(
        SourceReadOut(file, one.lineno, one.end_lineno or one.lineno) for one in functions if _only_reads_out(one)
    )


def _only_reads_out(function: Function) -> bool:
    inside = [*written_in(function, but=(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))]
    if not any(map(_reads_out, inside)) or any(map(_gives_a_value, inside)):
        return False
    given = function.args
    tensors = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self"}
    if not tensors:  # it has them from somewhere else
        return False
    for node in inside:  # what is made of tensors is one, in the order in which it is written
        if isinstance(node, _Assignment) and node.value is not None and _has_any(node.value, tensors):
            tensors |= {name for target in _targets(node) for name in names_stored(ast.walk(target))}
        elif isinstance(node, ast.For) and _has_any(node.iter, tensors):
            tensors |= {*names_stored(ast.walk(node.target))}
    outer = {name for node in inside if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return not any(_leaves_any(node, tensors, outer) or _changes_any(node, tensors, outer) for node in inside)


def _leaves_any(node: ast.AST, tensors: Collection[str], outer: Collection[str]) -> bool:
    """Whether a tensor is kept somewhere else, or given to somebody who may keep it."""
    if isinstance(node, _Assignment):
        elsewhere = any(not _is_local(target, outer) for target in _targets(node))
        return elsewhere and node.value is not None and _has_any(node.value, tensors)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and last_name(node.value.func) != "print":
        return any(_has_any(one, tensors) for one in (node.value.func, *arguments(node.value)))
    return False


def _changes_any(node: ast.AST, tensors: Collection[str], outer: Collection[str]) -> bool:
    """Whether a tensor, or what has tensors, becomes another one in its place."""
    if isinstance(node, _Assignment):
        parts = [one for one in _targets(node) if isinstance(node, ast.AugAssign) or not _is_local(one, outer)]
        return any(_root(one) in tensors for one in parts)
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    in_place = is_in_place(name) or any(one.arg in IN_PLACE for one in node.keywords)
    return in_place or name in ("step", "backward", "setattr")


def _reads_out(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in READS_OUT


def _gives_a_value(node: ast.AST) -> bool:
    if isinstance(node, ast.Return):
        return node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None)
    return isinstance(node, ast.Yield | ast.YieldFrom)


def _has_any(value: ast.AST, tensors: Collection[str]) -> bool:
    """Whether an expression has anything of tensors but what is read out of them, or their shape."""
    if _reads_out(value) or (isinstance(value, ast.Attribute) and value.attr in DESCRIBES):
        return False
    if isinstance(value, ast.Name):
        return value.id in tensors
    return any(_has_any(child, tensors) for child in ast.iter_child_nodes(value))


def _targets(node: _Assignment) -> list[ast.expr]:
    """What an assignment gives a value, one by one."""
    return [part for one in targets_of(node) for part in (one.elts if isinstance(one, ast.Tuple | ast.List) else [one])]


def _is_local(target: ast.expr, outer: Collection[str]) -> bool:
    return isinstance(target, ast.Name) and target.id not in outer


def _root(target: ast.expr) -> str:
    """The name whose attribute or item, however far below, a target is."""
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""
