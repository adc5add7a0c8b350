"""Functions of the job's own source that only read values out of tensors: as hooks they are no part of a model.

A hook may as well change what a module puts out, set its weights, keep a part of the loss, or update parameters. So one
counts only where all that it leaves behind are numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfdoctor.knowledge.libraries import KEEPS, READS_OUT
from perfdoctor.recording.own_source import SourceReadOut
from perfdoctor.results.edits import last_name

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def find_read_outs(file: str, tree: ast.Module) -> list[SourceReadOut]:
    """Functions that return nothing, read values out, and keep nothing else.

    Args:
        file: as stacks name it.
        tree: its syntax.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    functions = (node for node in ast.walk(tree) if isinstance(node, _Function))
    return sorted(
        SourceReadOut(file, one.lineno, one.end_lineno or one.lineno) for one in functions if _only_reads_out(one)
    )


def _only_reads_out(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    inside = [*_inside(function)]
    calls = [last_name(node.func) for node in inside if isinstance(node, ast.Call)]
    if not any(name in READS_OUT for name in calls) or any(map(_changes_in_place, calls)):
        return False
    if any(map(_gives_a_value, inside)):
        return False
    numbers: set[str] = set()
    for node in inside:  # names that hold numbers, in the order in which they are written
        if isinstance(node, ast.Assign) and _is_of_numbers(node.value, numbers):
            numbers |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return all(_is_of_numbers(kept, numbers) for node in inside for kept in _kept(node))


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """All that is written in a function, without functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (*_Function, ast.Lambda)):
            yield child
            yield from _inside(child)


def _changes_in_place(name: str) -> bool:
    """Whether a call by this name changes what it is called on: PyTorch's methods in place, an optimizer's step."""
    return (name.endswith("_") and not name.endswith("__")) or name in ("step", "backward", "setattr")


def _gives_a_value(node: ast.AST) -> bool:
    if isinstance(node, ast.Return):
        return node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None)
    return isinstance(node, ast.Yield | ast.YieldFrom)


def _kept(node: ast.AST) -> Iterator[ast.expr]:
    """What is left behind: in attributes and items, and in containers."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    if isinstance(node, ast.Assign | ast.AugAssign) and not all(map(_is_local, targets)):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
        yield from node.args[-1:]


def _is_local(target: ast.expr) -> bool:
    """Whether what is assigned gets names only, and goes with them."""
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(_is_local, target.elts))
    return isinstance(target, ast.Name)


def _is_of_numbers(value: ast.expr, numbers: set[str]) -> bool:
    """Whether an expression has nothing of tensors but what is read out of them."""
    left = (node for node in _but_read_outs(value) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return {node.id for node in left} <= numbers


def _but_read_outs(node: ast.AST) -> Iterator[ast.AST]:
    """All of an expression but what is read out, and what comprehensions go over."""
    if not (isinstance(node, ast.Call) and last_name(node.func) in READS_OUT):
        yield node
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.comprehension):
                yield from _but_read_outs(child)
