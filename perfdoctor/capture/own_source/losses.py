"""Where a loss over classes is given a view that turns the classes to where they do not lie in memory."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from perfdoctor.capture.own_source.syntax import as_operand, calls_in
from perfdoctor.knowledge.detours import LAYERS_OF_CLASSES, LOSSES_OF_CLASSES, SWAPS_SECOND
from perfdoctor.results.edits import last_name

_REDUCED = ("'mean'", "'sum'")


def find_losses(tree: ast.Module) -> Collection[str]:
    """How losses over classes are called: ``F.cross_entropy``, and the places of layers, ``self.loss``."""
    functions = {ast.unparse(call.func) for call in calls_in(tree) if last_name(call.func) in LOSSES_OF_CLASSES}
    return functions | {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if last_name(node.value.func) in LAYERS_OF_CLASSES and _is_reduced(node.value)
        for target in node.targets
    }


def find_turned(value: ast.expr, losses: Collection[str]) -> Iterator[tuple[str, str]]:
    """Losses of a batch of sequences in an expression, by which the second dimension is the classes: what, and how.

    Args:
        value: the expression.
        losses: how they are called.
    """
    for call in calls_in(value):
        match call:
            case ast.Call(func=function, args=[ast.Call(func=ast.Attribute(value=scores, attr=way), args=by), targets]):
                swapped = (way, ", ".join(map(ast.unparse, by))) in SWAPS_SECOND
                if swapped and ast.unparse(function) in losses and _is_reduced(call):
                    given = [f"{as_operand(scores)}.flatten(0, 1)", f"{as_operand(targets)}.flatten()"]
                    given += map(ast.unparse, call.keywords)
                    yield ast.unparse(function), f"{ast.unparse(function)}({', '.join(given)})"


def _is_reduced(call: ast.Call) -> bool:
    """Whether the losses of all positions become one number."""
    return all(ast.unparse(one.value) in _REDUCED for one in call.keywords if one.arg == "reduction")
