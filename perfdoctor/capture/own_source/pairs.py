"""Where all pairs of rows are written out, number by number, to be reduced to one number each."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

from perfdoctor.capture.own_source.gradients import lines_without_gradients
from perfdoctor.capture.own_source.syntax import as_operand, blocks_of, calls_in, made_before
from perfdoctor.knowledge.detours import (
    ALL_PAIRS,
    DIMENSION,
    MATRICES,
    NORMS,
    NUMPY,
    ORDER,
    PAIRS_FORWARD,
    POWERS,
    SIMILARITIES,
    TENSOR_MODULES,
)
from perfdoctor.results.edits import first_name, last_name

# What computes the same from both matrices, in torch and in NumPy.
_SQUARES, _DISTANCE, _ABSOLUTE, _PRODUCTS, _COSINES = "squares", "distance", "absolute", "products", "cosines"
_INSTEAD: Mapping[str, tuple[str, str]] = {
    _SQUARES: ("torch.cdist({a}, {b}).pow(2)", "scipy.spatial.distance.cdist({a}, {b}, 'sqeuclidean')"),
    _DISTANCE: ("torch.cdist({a}, {b})", "scipy.spatial.distance.cdist({a}, {b})"),
    _ABSOLUTE: ("torch.cdist({a}, {b}, p=1)", "scipy.spatial.distance.cdist({a}, {b}, 'cityblock')"),
    _PRODUCTS: ("{a} @ {b}.mT", "{a} @ {b}.T"),
    _COSINES: ("{of}normalize({a}, dim=-1) @ {of}normalize({b}, dim=-1).mT", ""),
}
_REDUCES = NORMS | SIMILARITIES | {"sum"}
_NEW, _WHOLE = ("None", "np.newaxis", "numpy.newaxis"), (":", "...")


class _Reduced(NamedTuple):
    """What becomes of the numbers of each pair.

    Attributes:
        kind: which of ``_INSTEAD``.
        one: what is spread along one dimension.
        other: what is spread along the other.
        dimension: along which the numbers of a pair lie.
    """

    kind: str
    one: ast.expr
    other: ast.expr
    dimension: int


def find_pairs(
    tree: ast.Module, given: Mapping[str, Sequence[ast.expr | None]]
) -> Iterator[tuple[str, ast.stmt, ast.stmt, tuple[str, str]]]:
    """Statements that write pairs out: which way, the first, the last, what is of them, and what computes the same.

    Args:
        tree: syntax of a file.
        given: all values that attributes are given in it.
    """
    lines = {call.lineno for call in calls_in(tree) if last_name(call.func) in _REDUCES}
    matrices = {place for place, values in given.items() if all(map(_is_matrix, values))}
    found = [one for block in blocks_of(ast.walk(tree)) for one in _of_block(block, lines, matrices)] if lines else []
    without = lines_without_gradients(tree) if found else ()
    for first, last, told in found:
        yield PAIRS_FORWARD if last.lineno in without else ALL_PAIRS, first, last, told


def _of_block(
    block: Sequence[ast.stmt], lines: Collection[int], matrices: Collection[str]
) -> Iterator[tuple[ast.stmt, ast.stmt, tuple[str, str]]]:
    for number, statement in enumerate(block):
        value = getattr(statement, "value", None)
        if not isinstance(value, ast.expr) or not any(
            line in lines for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        ):
            continue
        told = [*_told(value, matrices)]
        yield from ((statement, statement, one) for one in told)
        before = None if told else made_before(block, number)
        if before is not None and isinstance(before[1], ast.BinOp):
            value = _Put(*before).visit(deepcopy(value))
            yield from ((block[number - 1], statement, one) for one in _told(value, matrices))


class _Put(ast.NodeTransformer):
    """Puts in place of a name what it stands for."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self._name, self._value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._value if node.id == self._name else node


def _told(value: ast.AST | None, matrices: Collection[str]) -> Iterator[tuple[str, str]]:
    """The reduced pairs in an expression, and what takes their place; of one within another the outer one."""
    told = _instead(value, matrices) if isinstance(value, ast.Call) else None
    if told is not None:
        yield told
    elif value is not None:
        for child in ast.iter_child_nodes(value):
            yield from _told(child, matrices)


def _instead(call: ast.Call, matrices: Collection[str]) -> tuple[str, str] | None:
    found = _reduced(call)
    if found is None:
        return None
    (one, at), (other, there) = _spread(found.one), _spread(found.other)
    # A matrix as it is gets a dimension in front by itself.
    front = 0 if (at if at is not None else there or 0) >= 0 else -3
    at = front if at is None and _is_known(one, matrices) else at
    there = front if there is None and _is_known(other, matrices) else there
    if at is None or there is None or abs(at - there) != 1 or (at < 0) != (there < 0):
        return None
    if (found.dimension != -1 and found.dimension != max(at, there) + 1) or max(at, there) == -1:
        return None
    rows, columns = (one, other) if at > there else (other, one)
    of = ast.unparse(call.func).removesuffix(last_name(call.func))
    new = _INSTEAD[found.kind][_is_of_numpy(call)]
    return (ast.unparse(call), new.format(a=as_operand(rows), b=as_operand(columns), of=of)) if new else None


def _reduced(call: ast.Call) -> _Reduced | None:
    """How a call reduces something of pairs to one number along a dimension; None where it does anything else."""
    name, given = last_name(call.func), _given(call)
    named = {one.arg or "**": one.value for one in call.keywords}
    if name == "sqrt" and not named:
        inner = _reduced(given[0]) if len(given) == 1 and isinstance(given[0], ast.Call) else None
        return inner._replace(kind=_DISTANCE) if inner is not None and inner.kind == _SQUARES else None
    orders = [named.pop(one) for one in ORDER if one in named]
    along = [named.pop(one) for one in DIMENSION if one in named]
    if named or not given:
        return None
    value, *rest = given
    if name in SIMILARITIES and rest:
        return _of(_COSINES, value, rest[0], [*rest[1:], *along])
    if name in NORMS:
        order = ast.unparse([*orders, *rest[:1], ast.Constant(2)][0])
        kind = {"1": _ABSOLUTE, "2": _DISTANCE}.get(order, "")
        return _of_difference(kind, value, [*rest[1:], *along])
    if name == "sum" and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _of(_PRODUCTS, value.left, value.right, [*rest, *along])
    return _of_difference(*_power(value), [*rest, *along]) if name == "sum" else None


def _given(call: ast.Call) -> list[ast.expr]:
    """What a call is given by place, what it is a method of included."""
    is_method = isinstance(call.func, ast.Attribute) and first_name(call.func) not in TENSOR_MODULES
    return [*([call.func.value] if is_method and isinstance(call.func, ast.Attribute) else []), *call.args]


def _power(value: ast.expr) -> tuple[str, ast.expr]:
    """Whether a value holds squares or absolute values, and of what."""
    match value:
        case ast.BinOp(left=of, op=ast.Pow(), right=ast.Constant(value=2)):
            return _SQUARES, of
        case ast.Call(keywords=[]) as call if last_name(call.func) in POWERS:
            of, *rest = _given(call) or [value]
            if [*map(ast.unparse, rest)] == POWERS[last_name(call.func)]:
                return _ABSOLUTE if last_name(call.func) == "abs" else _SQUARES, of
    return "", value


def _of_difference(kind: str, value: ast.expr, along: Sequence[ast.expr]) -> _Reduced | None:
    match value:
        case ast.BinOp(left=one, op=ast.Sub(), right=other) if kind:
            return _of(kind, one, other, along)
    return None


def _of(kind: str, one: ast.expr, other: ast.expr, along: Sequence[ast.expr]) -> _Reduced | None:
    dimension = _number(along[0]) if len(along) == 1 else None
    return None if dimension is None else _Reduced(kind, one, other, dimension)


def _spread(value: ast.expr) -> tuple[ast.expr, int | None]:
    """What a dimension of size one is put into, and where; None where there is none."""
    match value:
        case ast.Call(func=function, keywords=[]) if last_name(function) == "unsqueeze" and len(_given(value)) == 2:
            of, at = _given(value)
            return of, _number(at)
        case ast.Subscript(value=of, slice=index):
            texts = [ast.unparse(one) for one in (index.elts if isinstance(index, ast.Tuple) else [index])]
            put = [number for number, text in enumerate(texts) if text in _NEW]
            if len(put) == 1 and all(text in (*_NEW, *_WHOLE) for text in texts):
                return of, put[0] - (len(texts) if "..." in texts[: put[0]] else 0)
    return value, None


def _number(value: ast.expr) -> int | None:
    try:
        number = ast.literal_eval(value)
    except ValueError:
        return None
    return number if isinstance(number, int) else None


def _is_known(value: ast.expr, matrices: Collection[str]) -> bool:
    """Whether something is a matrix: a layer's weight, or one of some places."""
    return (isinstance(value, ast.Attribute) and value.attr == "weight") or ast.unparse(value) in matrices


def _is_of_numpy(call: ast.Call) -> bool:
    named = {one.arg for node in ast.walk(call) if isinstance(node, ast.Call) for one in node.keywords}
    return "axis" in named or any(isinstance(one, ast.Name) and one.id in NUMPY for one in ast.walk(call))


def _is_matrix(value: ast.expr | None) -> bool:
    match value:
        case ast.Call(func=function, args=[ast.Call(args=[_, _])]):
            return last_name(function) in MATRICES
    return False
