"""Where the job's own source does again what was done before, or more than it uses, and what is better instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from perfdoctor.capture.own_source.attention import find_attention
from perfdoctor.capture.own_source.calls import text_of
from perfdoctor.capture.own_source.carried import find_carried
from perfdoctor.capture.own_source.derivatives import find_helpers, find_one_by_one
from perfdoctor.capture.own_source.enlarged import find_enlarged, find_layers
from perfdoctor.capture.own_source.losses import find_losses, find_turned
from perfdoctor.capture.own_source.pairs import find_pairs
from perfdoctor.capture.own_source.parameters import find_by_parameter
from perfdoctor.capture.own_source.stacked import find_stacked
from perfdoctor.capture.own_source.syntax import (
    RUN_ELSEWHERE,
    Function,
    Loop,
    Place,
    blocks_of,
    factors_of,
    given_to_attributes,
    names_in,
    names_stored,
    only_target,
)
from perfdoctor.knowledge.detours import (
    ATTENTION_TAKES,
    BY_POSITION,
    CACHE_SWITCH,
    CARRIED,
    CONVERTS,
    COPIED,
    COPIES,
    DERIVES,
    DIMENSION,
    ENLARGED,
    INDEXED_LATE,
    JOINED,
    JOINED_CUT,
    JOINING_PACKAGES,
    JOINS,
    JOINS_SECOND,
    LISTED,
    MAKES_OF_LIST,
    ONE_BY_ONE,
    ONE_HOT,
    ONE_HOT_LAYER,
    ONES_OF_INDEX,
    PRODUCTS,
    STACKED,
    TURNED,
    TWO_PASSES,
    UNCACHED,
    WEIGHTS_SWITCH,
    WEIGHTS_UNUSED,
    WRITTEN_OUT,
)
from perfdoctor.knowledge.libraries import BACKWARD
from perfdoctor.recording.own_source import SourceDetour
from perfdoctor.results.edits import first_name, last_name, written_in

# Methods of containers that keep what they are given.
_KEEPS = frozenset(("append", "appendleft", "add", "insert", "put", "extend"))
# Where along a dimension something is written; along others the source's own call is not as clear.
_AT = {"0": "[at]", "1": "[:, at]", "-1": "[..., at]"}


def find_detours(file: str, tree: ast.Module, lines: Sequence[str]) -> Iterator[SourceDetour]:
    """The detours in Python source; one with a secret in it is left out.

    Args:
        file: as stacks name it.
        tree: its syntax.
        lines: of it.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    given = given_to_attributes(tree)
    layers, helpers = _layers(given), find_helpers(tree)
    names: dict[int, str] = {}  # of functions, by what is written in them
    found: list[tuple[str, ast.stmt, ast.stmt, tuple[str, ...]]] = []
    maps, losses = find_layers(given), find_losses(tree)
    for scope in (node for node in ast.walk(tree) if isinstance(node, ast.Module | Function)):
        inside = [node for node in written_in(scope, but=RUN_ELSEWHERE) if isinstance(node, ast.stmt)]
        names |= {id(node): getattr(scope, "name", "<module>") for node in inside}
        ones = _ones(inside)
        found += [(way, node, node, what) for node in inside for way, what in _of_statement(node, layers, ones)]
        values = [(node, value) for node in inside if (value := _simple(node)) is not None] if losses else []
        found += [(TURNED, node, node, what) for node, value in values for what in find_turned(value, losses)]
        found += [(COPIED, node, node, of) for node in inside if (of := _copied(node, scope)) is not None]
        found += [(way, node, node, what) for node in inside for way, what in _joined(node, scope)]
        found += [(way, node, node, what) for node in inside for way, what in find_by_parameter(node)]
        found += [(WRITTEN_OUT, first, last, what) for first, last, what in find_attention(inside)]
        for block in blocks_of([scope, *inside]):
            found += [(ENLARGED, first, last, what) for first, last, what in find_enlarged(block, maps)]
            found += [(TWO_PASSES, first, last, what) for first, last, what in _two_passes(block)]
            found += [(ONE_BY_ONE, first, last, what) for first, last, what in find_one_by_one(block, helpers)]
    found += find_pairs(tree, given)
    found += [(CARRIED, node, node, what) for node, what in find_carried(tree)]
    found += [(STACKED, node, node, what) for node, what in find_stacked(tree)]
    for way, first, last, what in found:
        if text_of(lines, first) and text_of(lines, last):
            kept, new, put = (*what, "", "")[:3]
            function = names.get(id(first), "<module>")
            yield SourceDetour(file, first.lineno, last.end_lineno or last.lineno, way, kept, new, put, function)


def _simple(statement: ast.stmt) -> ast.expr | None:
    """What a simple statement computes."""
    return statement.value if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return) else None


def _of_statement(
    statement: ast.stmt, layers: Mapping[str, ast.Call], ones: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The detours that show in one statement."""
    value = _simple(statement)
    for node in ast.walk(value) if value is not None else ():
        if (product := _of_ones(node, layers, ones)) is not None:
            yield product
        elif (late := _indexed_late(node, layers)) is not None:
            yield INDEXED_LATE, late
        elif (listed := _listed(node)) is not None:
            yield LISTED, listed
    if (attention := _drops_weights(statement)) is not None:
        yield WEIGHTS_UNUSED, attention
    if _switches_cache_off(statement):
        yield UNCACHED, (ast.unparse(statement),)


def _drops_weights(statement: ast.stmt) -> tuple[str, str] | None:
    """A call like one of a layer for attention, of whose two results one is taken, and what it is given."""
    value, target = _simple(statement), only_target(statement)
    match target, value:
        case ast.Tuple(elts=[_, ast.Name(id="_" | "__")]), ast.Call() as call:
            pass
        case _, ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=0)):
            pass
        case _:
            return None
    named = {one.arg for one in call.keywords}
    if last_name(call.func) in DERIVES:
        return None
    if WEIGHTS_SWITCH in named or len(call.args) + len(named & {*ATTENTION_TAKES}) < len(ATTENTION_TAKES):
        return None
    return ast.unparse(call.func), ", ".join([*map(ast.unparse, call.args), *map(ast.unparse, call.keywords)])


def _switches_cache_off(statement: ast.stmt) -> bool:
    """Whether a statement has a language model keep no keys and values: ``use_cache=False``, given or set."""
    target, value = only_target(statement), _simple(statement)
    if isinstance(target, ast.Attribute) and target.attr == CACHE_SWITCH:
        return _is_false(value)
    given = (one for node in ast.walk(value) if isinstance(node, ast.Call) for one in node.keywords) if value else ()
    return any(one.arg == CACHE_SWITCH and _is_false(one.value) for one in given)


def _is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def _copied(statement: ast.stmt, scope: ast.AST) -> tuple[str, str] | None:
    """What a copy goes into, and of what it is, where the copy before is used by nobody any more.

    A name of a function's own has to be there before.
    """
    target, call = only_target(statement), _simple(statement)
    if not isinstance(target, Place) or not isinstance(call, ast.Call) or last_name(call.func) not in COPIES:
        return None
    if len(call.args) != 1 or not isinstance(call.args[0], Place | ast.Call):
        return None
    kept = ast.unparse(target)
    known = [*names_stored(ast.walk(scope))].count(kept)
    if (isinstance(target, ast.Name) and known < 2) or _is_kept_elsewhere(kept, scope):
        return None
    return kept, ast.unparse(call.args[0])


def _is_kept_elsewhere(kept: str, scope: ast.AST) -> bool:
    """Whether something gets another name, goes into a container or to a caller."""
    for node in ast.walk(scope):
        given: list[ast.expr | None] = []
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return | ast.Yield | ast.NamedExpr):
            given = [node.value]
        elif isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(
            getattr(node, "ctx", ast.Load()), ast.Load
        ):
            given = [*node.elts]
        elif isinstance(node, ast.Dict):
            given = [*node.values]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS:
            given = [*node.args]
        if any(one is not None and ast.unparse(one) == kept for one in given):
            return True
    return False


def _listed(node: ast.AST) -> tuple[str, str, str] | None:
    """The call that makes a tensor of a list which is made for it, that list, and what else the call is given."""
    match node:
        case ast.Call(func=function, args=[ast.ListComp(elt=element) as made]) if last_name(function) in MAKES_OF_LIST:
            if first_name(function) != "torch" or not isinstance(element, Place | ast.Subscript | ast.Call):
                return None
            return ast.unparse(function), ast.unparse(made), ", ".join(map(ast.unparse, node.keywords))
    return None


def _of_ones(
    node: ast.AST, layers: Mapping[str, ast.Call], ones: Mapping[str, str]
) -> tuple[str, tuple[str, ...]] | None:
    """A product of ones and zeros with a table, or with the weights of a layer: which of both, and with which indices.

    Args:
        node: an expression.
        layers: by the places that they are at.
        ones: names of ones and zeros, with the indices that they stand for.
    """
    if (factors := factors_of(node, PRODUCTS)) is not None and (index := _index_of(factors[0], ones)):
        return ONE_HOT, (ast.unparse(factors[1]), index)
    match node:
        case ast.Call(func=function, args=[given], keywords=[]) if layer := layers.get(ast.unparse(function)):
            if index := _index_of(given, ones):
                name = ast.unparse(function)
                return ONE_HOT_LAYER, (f"{name}.weight.T", index, f"{name}.bias" if _has_bias(layer) else "")
    return None


def _index_of(value: ast.expr, ones: Mapping[str, str]) -> str:
    """The indices that ones and zeros stand for; "" of anything else."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in CONVERTS:
        value = value.func.value
    if isinstance(value, ast.Name):
        return ones.get(value.id, "")
    is_one = isinstance(value, ast.Call) and last_name(value.func) in ONES_OF_INDEX and value.args
    return ast.unparse(value.args[0]) if isinstance(value, ast.Call) and is_one else ""


def _ones(inside: Sequence[ast.stmt]) -> Mapping[str, str]:
    """The names in a function that stand for nothing but ones and zeros of indices, with these."""
    stored = [*names_stored(node for one in inside for node in ast.walk(one))]
    found: dict[str, str] = {}
    for statement in inside:
        target, value = only_target(statement), _simple(statement)
        if isinstance(target, ast.Name) and value is not None and (index := _index_of(value, {})):
            found[target.id] = index
    return {name: index for name, index in found.items() if stored.count(name) == 1}


def _layers(given: Mapping[str, Sequence[ast.expr | None]]) -> Mapping[str, ast.Call]:
    """Of the attributes that are given values the layers that do the same to each position, with what makes them."""
    found: dict[str, ast.Call] = {}
    for place, values in given.items():
        calls = [one for one in values if isinstance(one, ast.Call) and last_name(one.func) in BY_POSITION]
        if len(calls) == len(values):
            found[place] = calls[-1]
    return found


def _has_bias(layer: ast.Call) -> bool:
    given = [*layer.args[2:3], *(one.value for one in layer.keywords if one.arg == "bias")]
    return not any(map(_is_false, given))


def _puts_out_one(layer: ast.Call) -> bool:
    sizes = [*layer.args[1:2], *(one.value for one in layer.keywords if one.arg == "out_features")]
    return any(isinstance(size, ast.Constant) and size.value == 1 for size in sizes)


def _indexed_late(node: ast.AST, layers: Mapping[str, ast.Call]) -> tuple[str, str] | None:
    """A layer, and what it may be given, where one position of what it puts out is used: ``self.head(x)[:, -1]``.

    Of a matrix that would be one of its outputs: the last of several is hardly what is meant, the first may be.
    """
    match node:
        case ast.Subscript(value=ast.Call(args=[given], keywords=[]) as call, slice=ast.Tuple(elts=[every, at, *rest])):
            layer = layers.get(ast.unparse(call.func))
            if layer is None or _puts_out_one(layer) or ast.unparse(every) != ":":
                return None
            whole = len(rest) == 1 and ast.unparse(rest[0]) in (":", "...")
            if (not rest and ast.unparse(at) == "-1") or (whole and isinstance(at, ast.Constant | ast.UnaryOp)):
                of = ast.unparse(given) if isinstance(given, Place | ast.Call) else f"({ast.unparse(given)})"
                return ast.unparse(call.func), f"{of}[{ast.unparse(node.slice).strip('()')}]"
    return None


def _joined(statement: ast.stmt, scope: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """That a statement joins what it keeps with what is new, and keeps that."""
    target, value = only_target(statement), _simple(statement)
    if not isinstance(target, Place) or value is None:
        return
    cut, call = _within(value)
    kept = ast.unparse(target)
    if call is None or (isinstance(target, ast.Name) and not _grows_in_loop(statement, kept, scope)):
        return
    joined, dimension = _joins(call)
    others = [one for one in joined if kept not in map(ast.unparse, _shorter(one))]
    if len(others) == len(joined) - 1 and len(others) == 1 and dimension in _AT:
        yield JOINED_CUT if cut else JOINED, (kept, ast.unparse(others[0]), _AT[dimension])


def _within(value: ast.expr) -> tuple[bool, ast.Call | None]:
    """The call that joins, and whether a piece of what it makes is kept: ``torch.cat([new, kept])[:size].clone()``."""
    cut = False
    while True:
        match value:
            case ast.Subscript(value=inner):
                cut, value = True, inner
            case ast.Call(func=ast.Attribute(value=ast.Subscript() | ast.Call() as inner), args=[]):
                value = inner
            case ast.Call() if last_name(value.func) in JOINS and first_name(value.func) in JOINING_PACKAGES | {"np"}:
                return cut or any(map(_has_slice, _joins(value)[0])), value
            case _:
                return cut, None


def _joins(call: ast.Call) -> tuple[list[ast.expr], str]:
    """What a call joins, and along which dimension; "" where that is not clear."""
    several = call.args and isinstance(call.args[0], ast.List | ast.Tuple)
    joined = call.args[0].elts if several and isinstance(call.args[0], ast.List | ast.Tuple) else call.args
    rest = call.args[1:] if several else []
    named = [one.value for one in call.keywords if one.arg in DIMENSION]
    given = [*rest, *named]
    usual = "1" if last_name(call.func) in JOINS_SECOND else "0"
    return list(joined), ast.unparse(given[0]) if given else usual


def _has_slice(value: ast.expr) -> bool:
    return any(isinstance(one, ast.Subscript) for one in ast.walk(value))


def _shorter(value: ast.expr) -> Iterator[ast.expr]:
    """What is joined, also where it is a piece of something or was computed of it: ``kept[1:]``, ``kept + 1``."""
    yield value
    match value:
        case ast.Subscript(value=inner) | ast.BinOp(left=inner, right=ast.Constant()):
            yield from _shorter(inner)
        case ast.Call(func=ast.Attribute(value=inner), args=[]):
            yield from _shorter(inner)


def _grows_in_loop(statement: ast.stmt, name: str, scope: ast.AST) -> bool:
    """Whether a loop around a statement gives a name no other value, nor is one over what it calls."""
    if any(isinstance(one, ast.Global | ast.Nonlocal) and name in one.names for one in ast.walk(scope)):
        return True
    around = [
        loop for loop in written_in(scope, but=RUN_ELSEWHERE)
        if isinstance(loop, Loop) and any(one is statement for one in ast.walk(loop))
    ]  # fmt: skip
    if not around:
        return False
    loop = around[-1]
    stores = [*names_stored(ast.walk(loop))].count(name)
    over = set() if isinstance(loop, ast.While) else names_in(loop.target)
    called = {
        last_name(one.func) for one in ast.walk(loop) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
    }
    return stores == 1 and not over & called


def _two_passes(block: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt, tuple[str, ...]]]:
    """Two backward passes through one graph, one right after the other: what they begin at, added up, needs one."""
    for first, second in pairwise(block):
        one, other = _pass(first), _pass(second)
        if one and other and one[1]:
            yield first, second, (one[0], other[0])


def _pass(statement: ast.stmt) -> tuple[str, bool] | None:
    """What a backward pass begins at, and whether it keeps the graph; None where it is given more than that."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=begin, attr=name), args=[], keywords=given)):
            keeps = [one.value for one in given if one.arg == "retain_graph"]
            if name == BACKWARD and len(keeps) == len(given):
                return ast.unparse(begin), any(isinstance(one, ast.Constant) and bool(one.value) for one in keeps)
    return None
