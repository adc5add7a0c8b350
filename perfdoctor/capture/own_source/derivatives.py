"""Where the job's own source asks for derivatives of the same one by one, each by a backward pass of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from perfdoctor.capture.own_source.syntax import Function, pairs_of
from perfdoctor.knowledge.detours import DERIVES
from perfdoctor.results.edits import last_name


class _Derivative(NamedTuple):
    """A name that gets a derivative.

    Attributes:
        name: it.
        function: that is asked.
        of: what it is a derivative of.
        by: by what.
        rest: what else the function is given, with commas in front.
    """

    name: str
    function: str
    of: str
    by: str
    rest: str


class _Helper(NamedTuple):
    """A function of the job's own that does nothing but ask for a derivative of what it is given."""

    parameters: Sequence[str]
    call: ast.Call


def find_helpers(tree: ast.Module) -> Mapping[str, _Helper]:
    """By their names the functions that give one derivative of one parameter by another one."""
    found: dict[str, _Helper] = {}
    for node in ast.walk(tree):
        if isinstance(node, Function) and isinstance(node.body[-1], ast.Return):
            call = _first_of(node.body[-1].value)
            comment = all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in node.body[:-1])
            parameters = [one.arg for one in node.args.args]
            if call is not None and comment and [*map(ast.unparse, call.args[:2])] == parameters[:2]:
                found[node.name] = _Helper(parameters, call)
    return found


def find_one_by_one(
    block: Sequence[ast.stmt], helpers: Mapping[str, _Helper]
) -> Iterator[tuple[ast.stmt, ast.stmt, tuple[str, ...]]]:
    """Derivatives of the same by several things, each asked for by itself: one right after the other, but for others.

    One call gives them all, of one pass, as long as nothing else of it changes meanwhile.
    """
    together: dict[tuple[str, str, str], list[tuple[ast.stmt, _Derivative]]] = {}
    for statement in [*block, ast.Pass()]:
        if found := _derivatives(statement, helpers):
            for one in found:
                same = together.setdefault((one.function, one.of, one.rest), [])
                if one.by not in [other.by for _, other in same]:
                    same.append((statement, one))
            continue
        for (function, of, rest), some in together.items():
            if len(some) > 1:
                call = f"{function}({of}, ({', '.join(one.by for _, one in some)}){rest})"
                yield some[0][0], some[-1][0], (", ".join(one.name for _, one in some), call)
        together = {}


def _derivatives(statement: ast.stmt, helpers: Mapping[str, _Helper]) -> list[_Derivative]:
    """The derivatives that a statement gives names, if it does nothing else."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return []
    found = [_derivative(target, one, helpers) for target, one in pairs_of(statement)]
    known = [one for one in found if one is not None]
    return known if len(known) == len(found) else []


def _derivative(target: ast.expr, value: ast.expr, helpers: Mapping[str, _Helper]) -> _Derivative | None:
    call = _first_of(value) or _of_helper(value, helpers)
    if not isinstance(target, ast.Name) or call is None or not isinstance(call.args[1], ast.Name):
        return None
    of, by = map(ast.unparse, call.args[:2])
    if target.id in (by, of):
        return None
    given = [*map(ast.unparse, call.args[2:]), *(f"{one.arg}={ast.unparse(one.value)}" for one in call.keywords)]
    return _Derivative(target.id, ast.unparse(call.func), of, by, "".join(f", {one}" for one in given))


def _first_of(value: ast.expr | None) -> ast.Call | None:
    """The call that a derivative is the first result of, ``torch.autograd.grad(y, x)[0]``."""
    match value:
        case ast.Subscript(value=ast.Call(args=[_, _, *_]) as call, slice=ast.Constant(value=0)):
            return call if last_name(call.func) in DERIVES and all(one.arg for one in call.keywords) else None
    return None


def _of_helper(value: ast.expr, helpers: Mapping[str, _Helper]) -> ast.Call | None:
    """The same of a function that does nothing else, in the words of whoever calls it."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.keywords:
        return None
    helper = helpers.get(value.func.id)
    if helper is None or len(value.args) != len(helper.parameters):
        return None
    given = dict(zip(helper.parameters, value.args, strict=True))
    copy = ast.parse(ast.unparse(helper.call), mode="eval").body
    named = _Named(given).visit(copy)
    return named if isinstance(named, ast.Call) else None


class _Named(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """What stands for a name."""
        return self._names.get(node.id, node)
