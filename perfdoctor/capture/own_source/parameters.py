"""Where the job's own source goes over parameters one by one, for what PyTorch does for all of them in one call."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from math import isclose

from perfdoctor.capture.own_source.syntax import Place, is_in_place
from perfdoctor.knowledge.detours import AVERAGED, DESCENDED, MADE_NEW, SAME_DATA
from perfdoctor.results.edits import last_name

# Methods that write into a tensor, or into what is known of it, and compute nothing.
_CLEARS = frozenset(("zero_", "detach_", "requires_grad_", "copy_", "fill_"))

_Found = tuple[str, tuple[str, str, str]]


def find_by_parameter(statement: ast.stmt) -> Iterator[_Found]:
    """What a statement does to each parameter, and what a call for all of them has to be given.

    Which detour it is, what it goes over, and the rest: the other model's parameters and the weight of what is kept, or
    how large a step is. Of an optimizer's update: what it keeps, and what that becomes.
    """
    known = [*_in_one_call(statement)]
    yield from known
    if isinstance(statement, ast.For) and not known:
        yield from _made_new(statement)


def _in_one_call(statement: ast.stmt) -> Iterator[_Found]:
    """What PyTorch has a call for."""
    match statement:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=one), ast.Name(id=other)]),
            iter=ast.Call(func=combine, args=[first, second]),
        ):
            pairs = {one: ast.unparse(first), other: ast.unparse(second)}
            if last_name(combine) == "zip" and len(pairs) == 2:
                yield from _averaged(statement.body, pairs)
        case ast.For(
            target=ast.Tuple(elts=[_, ast.Name(id=parameter)]),
            iter=ast.Call(func=ast.Attribute(attr="named_parameters")),
        ):
            over = ast.unparse(statement.iter).replace("named_parameters", "parameters")
            yield from _descended(statement.body, parameter, over)
        case ast.For(target=ast.Name(id=parameter)):
            yield from _descended(statement.body, parameter, ast.unparse(statement.iter))


def _averaged(body: Sequence[ast.stmt], pairs: dict[str, str]) -> Iterator[_Found]:
    """A mean that is kept of parameters: so much of what it was, and the rest of what they are now."""
    one, other = pairs
    if any("state_dict" in over or "buffers" in over for over in pairs.values()):  # counts are among them
        return
    for kept, new in ((one, other), (other, one)):
        weights = _weights(body, kept, new)
        if weights is not None and _are_one(*weights):
            yield AVERAGED, (pairs[kept], pairs[new], weights[0])


def _weights(body: Sequence[ast.stmt], kept: str, new: str) -> tuple[str, str] | None:
    """The weights of what is kept and of what is new in all that a body does; None where it does anything else."""
    of_kept, of_new = "1", "0"
    for statement in body:
        for change, value in _changes(statement, kept):
            found, untouched = _sum(value, (kept, new)), (of_kept, of_new) == ("1", "0")
            match change:
                case "set" if untouched and found.keys() == {kept, new}:
                    of_kept, of_new = found[kept], found[new]
                case "add" if found.keys() == {new} and of_new == "0":
                    of_new = found[new]
                case "scale" if untouched:
                    of_kept = ast.unparse(value)
                case "lerp" if untouched and isinstance(value, ast.Tuple) and _bare(value.elts[0]) == new:
                    of_new = ast.unparse(value.elts[1])
                    of_kept = _rest_of_one(of_new)
                case _:
                    return None
    return of_kept, of_new


def _rest_of_one(weight: str) -> str:
    """What a weight leaves of one."""
    taken = re.fullmatch(r"1(?:\.0*)? - ([\w.]+|\(.+\))", weight)
    if taken:
        return taken[1].strip("()")
    return f"1 - {weight}" if _is_plain(weight) else f"1 - ({weight})"


def _are_one(weight: str, rest: str) -> bool:
    """Whether one weight is what the other leaves of one, as they are written."""
    with suppress(ValueError):
        return isclose(float(weight) + float(rest), 1)
    return any(_rest_of_one(one) == other for one, other in ((weight, rest), (rest, weight)))


def _descended(body: Sequence[ast.stmt], parameter: str, over: str) -> Iterator[_Found]:
    """A step against the gradient of each parameter."""
    match body:
        case [ast.If(test=test, body=inner, orelse=[])] if f"{parameter}." in ast.unparse(test):
            body = inner
    changes = [change for statement in body for change in _changes(statement, parameter)]
    for change, value in changes if len(changes) == 1 else ():
        found = _sum(value, (parameter, f"{parameter}.grad"))
        moved = change == "add" or (change == "set" and found.pop(parameter, "") == "1")
        if moved and found.keys() == {f"{parameter}.grad"}:
            yield DESCENDED, (over, _negative(found[f"{parameter}.grad"]), "")


def _made_new(loop: ast.For) -> Iterator[_Found]:
    """An update by gradients that keeps something of each parameter, all of it by arithmetic that makes new tensors."""
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    gradients = {f"{node.id}.grad" for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    if any(isinstance(node, ast.For | ast.While) for node in inside) or any(map(_computes_in_place, inside)):
        return
    if not any(isinstance(node, ast.Attribute) and ast.unparse(node) in gradients for node in inside):
        return
    for node in inside:
        match node:
            case ast.Assign(targets=[ast.Subscript() | ast.Attribute() as target], value=value):
                kept, parts = _kept(target), [*ast.walk(value)]
                sums = sum(isinstance(part, ast.BinOp) for part in parts)
                if sums > 1 and kept not in gradients and any(_kept(part) == kept for part in parts):
                    yield MADE_NEW, (ast.unparse(target), ast.unparse(value), "")
                    return


def _kept(place: ast.AST) -> str:
    """What of an optimizer's state or of a parameter is meant; "" for anything else."""
    return ast.unparse(place) if isinstance(place, ast.Subscript) else _bare(place) if isinstance(place, Place) else ""


def _computes_in_place(node: ast.AST) -> bool:
    """Whether it calls a method that computes in its tensor's place, ``m.mul_(0.9)``."""
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return is_in_place(method) and not method.startswith("_") and method not in _CLEARS


def _changes(statement: ast.stmt, name: str) -> Iterator[tuple[str, ast.expr]]:
    """What a statement does to a tensor's numbers: ``set``, ``add``, ``scale`` or ``lerp``; "" for anything else."""
    match statement:
        case ast.Assign(targets=[target], value=value) if _bare(target) == name:
            yield "set", value
        case ast.AugAssign(target=target, op=ast.Add(), value=value) if _bare(target) == name:
            yield "add", value
        case ast.AugAssign(target=target, op=ast.Sub(), value=value) if _bare(target) == name:
            yield "add", ast.UnaryOp(ast.USub(), value)
        case ast.AugAssign(target=target, op=ast.Mult(), value=value) if _bare(target) == name:
            yield "scale", value
        case ast.Expr(value=ast.Call() as call):
            yield from _calls(call, name)
        case _:
            yield "", ast.Constant(None)


def _calls(call: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
    """The same of a chain of calls, ``kept.mul_(0.9).add_(new, alpha=0.1)``."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    named = {one.arg: one.value for one in call.keywords}
    if "out" in named and last_name(call.func) == "add" and len(call.args) == 2:
        call = ast.Call(ast.Attribute(call.args[0], "add_"), call.args[1:], call.keywords)
        inner = named["out"]
    if isinstance(inner, ast.Call) and last_name(inner.func) not in SAME_DATA:
        yield from _calls(inner, name)
    elif inner is None or _bare(inner) != name:
        yield "", ast.Constant(None)
        return
    match last_name(call.func), call.args:
        case "copy_", [value]:
            yield "set", value
        case "mul_", [value]:
            yield "scale", value
        case "lerp_", [_, _]:
            yield "lerp", ast.Tuple(call.args, ast.Load())
        case "add_" | "sub_" as method, [value] | [_, value]:
            factor = named.get("alpha", call.args[0] if len(call.args) == 2 else ast.Constant(1))
            product = ast.BinOp(factor, ast.Mult(), value)
            yield "add", product if method == "add_" else ast.UnaryOp(ast.USub(), product)
        case _:
            yield "", ast.Constant(None)


def _sum(value: ast.expr, names: Collection[str]) -> dict[str, str]:
    """What each of some tensors is multiplied by in a sum of them; nothing where it is another kind of expression."""
    match value:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operation, right=right):
            first, second = _sum(left, names), _sum(right, names)
            if isinstance(operation, ast.Sub):
                second = {name: _negative(factor) for name, factor in second.items()}
            return {**first, **second} if first and second and not first.keys() & second.keys() else {}
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            for one, other in ((left, right), (right, left)):
                if (inner := _sum(one, names)) and not _mentions(other, names):
                    return {name: _product(factor, ast.unparse(other)) for name, factor in inner.items()}
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return {name: _negative(factor) for name, factor in _sum(inner, names).items()}
    return {_bare(value): "1"} if _bare(value) in names else {}


def _mentions(value: ast.expr, names: Collection[str]) -> bool:
    first = {name.partition(".")[0] for name in names}
    return any(isinstance(one, ast.Name) and one.id in first for one in ast.walk(value))


def _product(factor: str, other: str) -> str:
    if other == "1":
        return factor
    return {"1": other, "-1": f"-{other}"}.get(factor, f"{factor} * ({other})")


def _negative(factor: str) -> str:
    if factor.startswith("-") and _is_plain(factor[1:]):
        return factor[1:]
    return f"-{factor}" if _is_plain(factor) else f"-({factor})"


def _is_plain(factor: str) -> bool:
    """Whether it is a number or a name, which needs no brackets."""
    return re.fullmatch(r"[\w.]+", factor) is not None


def _bare(place: ast.expr) -> str:
    """What holds a tensor's numbers, without saying that they are meant: ``p`` of ``p.data`` and ``p.detach()``."""
    while True:
        match place:
            case ast.Attribute(value=inner, attr=name) if name in SAME_DATA:
                place = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[]) if name in SAME_DATA:
                place = inner
            case _:
                return ast.unparse(place) if isinstance(place, Place) else ""
