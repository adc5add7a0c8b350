"""Where a layer that does the same to each position is given a map that was enlarged right before."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

from perfdoctor.capture.own_source.syntax import calls_in, made_before
from perfdoctor.knowledge.detours import BY_PIXEL, ENLARGES, ENLARGING_LAYERS
from perfdoctor.results.edits import last_name

_ONE = ("1", "(1,)", "(1, 1)", "(1, 1, 1)")


class Layers(NamedTuple):
    """Places of layers, ``self.head``.

    Attributes:
        pointwise: convolutions of kernel size 1.
        enlarging: that enlarge a map.
    """

    pointwise: Collection[str]
    enlarging: Collection[str]


def find_layers(given: Mapping[str, Sequence[ast.expr | None]]) -> Layers:
    """Places that are given such layers and nothing else.

    Args:
        given: all values that attributes are given.
    """
    return Layers(
        {place for place, values in given.items() if all(map(_is_pointwise, values))},
        {place for place, values in given.items() if all(map(_is_enlarging, values))},
    )


def _is_pointwise(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in BY_PIXEL and _has_kernel_of_one(value)


def _is_enlarging(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in ENLARGING_LAYERS


def find_enlarged(block: Sequence[ast.stmt], layers: Layers) -> Iterator[tuple[ast.stmt, ast.stmt, tuple[str, str]]]:
    """Statements of a block in which one is given what was enlarged: the first, the last, the layer and the new call.

    Args:
        block: statements in their order.
        layers: of the file.
    """
    if not layers.pointwise:
        return
    for number, statement in enumerate(block):
        for layer, given in _calls(statement, layers):
            if (enlarging := _enlarging(given, layers)) is not None:
                yield statement, statement, _the_other_way_round(layer, enlarging)
            elif (before := made_before(block, number)) is not None and before[0] == ast.unparse(given):
                enlarging = _enlarging(before[1], layers)
                if enlarging is not None:
                    yield block[number - 1], statement, _the_other_way_round(layer, enlarging)


def _calls(statement: ast.stmt, layers: Layers) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls of layers that do the same to each position, with what they are given."""
    value = getattr(statement, "value", None)
    for call in calls_in(value) if isinstance(value, ast.expr) else ():
        if len(call.args) == 1 and not call.keywords and ast.unparse(call.func) in layers.pointwise:
            yield call, call.args[0]


def _enlarging(value: ast.expr | None, layers: Layers) -> ast.Call | None:
    """The call by which an expression enlarges a map; None where it does not."""
    if not isinstance(value, ast.Call) or not value.args:
        return None
    if ast.unparse(value.func) in layers.enlarging:
        return value
    factors = [one.value for one in value.keywords if one.arg == "scale_factor"]
    smaller = any(isinstance(one, ast.Constant) and isinstance(one.value, float) and one.value < 1 for one in factors)
    return value if last_name(value.func) in ENLARGES and not smaller else None


def _the_other_way_round(layer: ast.Call, enlarging: ast.Call) -> tuple[str, str]:
    """The layer, and the call that enlarges what it puts out."""
    name, call = ast.unparse(layer.func), deepcopy(enlarging)
    call.args[0] = ast.Call(layer.func, [call.args[0]], [])
    return name, ast.unparse(call)


def _has_kernel_of_one(call: ast.Call) -> bool:
    """Whether a convolution has a kernel of one position, and takes all positions."""
    named = {one.arg: ast.unparse(one.value) for one in call.keywords}
    kernel = ast.unparse(call.args[2]) if len(call.args) > 2 else named.get("kernel_size")
    moved = {"stride", "padding", "groups"} & named.keys()
    return kernel in _ONE and len(call.args) <= 3 and not moved
