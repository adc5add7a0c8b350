"""What the job's own source makes of what never changes while it trains: it is the same in each step."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from perfdoctor.capture.own_source.calls import text_of
from perfdoctor.capture.own_source.sameness import CONSTANT, Made, OwnCall, Values
from perfdoctor.capture.own_source.scopes import Scope, Source, proven
from perfdoctor.capture.own_source.syntax import (
    RUN_ELSEWHERE,
    Loop,
    calls_in,
    is_in_place,
    names_given,
    only_target,
)
from perfdoctor.knowledge.detours import FILLED, MAKES, SHAPE_CALLS
from perfdoctor.knowledge.libraries import NO_GRADIENTS
from perfdoctor.knowledge.pure_calls import CHANGES_CONTAINER, VIEWS
from perfdoctor.recording.own_source import SourceGiven, SourceUnchanged
from perfdoctor.results.edits import last_name, written_in

# So often at most names are gone through: each time another one may turn out not to be the same.
_ROUNDS = 50


class _Pure(NamedTuple):
    """A function that gives the same whenever it is given the same, and changes nothing.

    Attributes:
        weak: its parameters of which nothing shows that they are tensors, arrays or numbers.
        of: what it is made of besides.
    """

    weak: frozenset[str]
    of: frozenset[str]


def find_unchanged(
    files: Mapping[str, ast.Module], lines: Mapping[str, Sequence[str]]
) -> Iterator[SourceUnchanged | SourceGiven]:
    """Statements that make the same whenever some parameters are the same, and calls that are given what is.

    Args:
        files: the syntax of each file, as stacks name it.
        lines: of each; a statement with a secret in it is left out.

    Raises:
        RecursionError: one has expressions of thousands of terms.
    """
    finder = _Finder(Source(files))
    for scope in finder.source.scopes:
        loop = finder.source.training_loop(scope)
        if loop is None and isinstance(scope.node, ast.Module):
            continue
        for row, node in finder.rows(scope, loop):
            if text_of(lines[scope.file], node):
                yield row


class _Finder:
    """Goes through the functions."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._pure: dict[Scope, _Pure | None] = {}
        self._results_changed = set(self._whose_results_change())

    def rows(self, scope: Scope, loop: ast.stmt | None) -> Iterator[tuple[SourceUnchanged | SourceGiven, ast.stmt]]:
        """The rows of one function; of one with a loop that trains those of the loop alone."""
        inside = scope.inside if loop is None else list(written_in(loop, but=RUN_ELSEWHERE))
        values = self._values(scope, loop, inside)
        shown = proven(scope, values)
        for node in inside:
            if not isinstance(node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr) or node.value is None:
                continue
            yield from ((row, node) for row in self._made(scope, node, values, shown))
            for call in calls_in(node.value):
                given = "" if values.is_computing(call) else _given(call, values)
                if given:
                    last = call.end_lineno or call.lineno
                    yield SourceGiven(scope.file, call.lineno, last, last_name(call.func), given), node

    def _made(
        self, scope: Scope, node: ast.Assign | ast.AnnAssign | ast.Return | ast.Expr, values: Values, shown: set[str]
    ) -> Iterator[SourceUnchanged]:
        """What of a statement is the same whenever some parameters are: all of it, or calls of the job's own."""
        assert node.value is not None
        if _is_changed(node, scope) or (isinstance(node, ast.Return) and scope in self._results_changed):
            return  # what is made is written into
        value = _costly_branch(node.value, values)
        made = values.of(value)
        if _is_data(made, shown) and not _takes_nothing(value):
            yield _row(scope, node, value, made, "")
        for part, callee in self._of_sizes(value, scope, values):
            yield _row(scope, node, part, values.of(part), callee)
        for call in calls_in(value):
            called, _ = self.source.called(call, scope)
            given = values.of(call) if called is not None else None
            if called is not None and _is_data(given, shown) and (made is None or given != made):
                yield _row(scope, node, call, given, called.name)

    def _of_sizes(self, value: ast.expr, scope: Scope, values: Values) -> Iterator[tuple[ast.expr, str]]:
        """The largest parts of an expression that are made of sizes and constants alone.

        Yields:
            One, and the function of the job's own that makes it, if it is no more than a call of that.
        """
        made = values.of(value)
        if made is not None and not made.of:
            called = self.source.called(value, scope)[0] if isinstance(value, ast.Call) else None
            if called is not None or (_makes(value, values) and not _takes_nothing(value)):
                yield value, called.name if called is not None else ""
                return
        if isinstance(value, ast.Call) and is_in_place(last_name(value.func)):
            return  # a part of it is written into
        for part in ast.iter_child_nodes(value):
            if isinstance(part, ast.expr | ast.keyword):
                yield from self._of_sizes(part.value if isinstance(part, ast.keyword) else part, scope, values)

    def _whose_results_change(self) -> Iterator[Scope]:
        """Functions into whose results is written where they are called."""
        for scope in self.source.scopes:
            for node in scope.inside:
                if isinstance(node, ast.Assign | ast.AnnAssign) and _is_changed(node, scope):
                    yield from filter(None, (self.source.called(call, scope)[0] for call in calls_in(node)))

    def _own_call(self, scope: Scope) -> OwnCall:
        """What calls of the job's own functions give in one of them."""

        def of(call: ast.Call, values: Values) -> Made | None:
            called, owner = self.source.called(call, scope)
            given = values.given(call)
            pure = self._purity(called) if called is not None and given is not None else None
            if pure is None or given is None:
                return None
            of = frozenset((owner,)) if pure.of and owner not in ("", "self") else pure.of
            whole = given._replace(of=given.of | of)
            return whole if pure.weak else whole.as_data()

        return of

    def _values(self, scope: Scope, loop: ast.stmt | None, inside: Sequence[ast.AST]) -> Values:
        """What names stand for in a function, or in a loop of it, with the own ones of what runs there."""
        names = self.source.base(scope, loop)
        given = _local_values(inside)
        several = {name for name, some in given.items() if len(some) > 1}
        carried = scope.stored_outside(loop) if loop is not None else set()
        unclear = several & _conditional(loop or scope.node) if several else set()
        for name in unclear | scope.changed | carried:
            given.pop(name, None)
        return self._settled(scope, names, {name: some for name, some in given.items() if name not in names})

    def _settled(
        self, scope: Scope, names: Mapping[str, Made], given: Mapping[str, Sequence[ast.expr | None]]
    ) -> Values:
        """Names with what they are made of, as far as all that they are given is the same each time.

        What is a parameter may be made of what it was before as well.
        """
        values = self.source.values(scope, {**dict.fromkeys(given, CONSTANT), **names}, self._own_call(scope))
        for _ in range(_ROUNDS):
            before = dict(values.names)
            for name, some in given.items():
                made = values.all_of(some) if name in values.names and None not in some else None
                if made is None:
                    values.names.pop(name, None)
                else:
                    made = made.named(name) if all(map(_is_size, some)) else made
                    values.names[name] = scope.as_parameter(name).joined(made)
            if values.names == before:
                return values
        return self.source.values(scope, names, self._own_call(scope))

    def _purity(self, scope: Scope) -> _Pure | None:
        if scope not in self._pure:
            self._pure[scope] = None  # while it is looked at: one that calls itself is none
            self._pure[scope] = self._looked_at(scope)
        return self._pure[scope]

    def _looked_at(self, scope: Scope) -> _Pure | None:
        node = scope.node
        if isinstance(node, ast.Module | ast.AsyncFunctionDef) or node.args.vararg or node.args.kwarg:
            return None
        given, own = _local_values(scope.inside, writes=True), _local_values(scope.inside)
        if not all(map(_may_be_pure, scope.inside)) or not scope.changed <= {*own} - {*scope.parameters}:
            return None
        if any(_is_view_of_other(value) for name in scope.changed for value in own[name]):
            return None
        names = {name: made for name, made in self.source.base(scope, None).items() if name not in given}
        values = self._settled(scope, names, given)
        if any(name not in values.names for name in given):
            return None
        made = values.all_of(_expressions(scope.inside))
        returns = [one for one in scope.inside if isinstance(one, ast.Return) and one.value is not None]
        if made is None or not returns:
            return None
        return _Pure(made.weak - proven(scope, values), made.of - {*scope.parameters})


def _is_changed(node: ast.stmt, scope: Scope) -> bool:
    """Whether what a statement gives a name is written into, or gets another value."""
    return not scope.changed.isdisjoint(names_given(node))


def _row(scope: Scope, node: ast.stmt, value: ast.expr, made: Made | None, callee: str) -> SourceUnchanged:
    assert made is not None
    target = only_target(node) if getattr(node, "value", None) is value else None
    key = ", ".join([*(f"id({one})" for one in sorted(made.of)), *sorted(made.sizes)])
    put = ast.unparse(target) if target is not None else "return" if isinstance(node, ast.Return) else ""
    return SourceUnchanged(
        scope.file, node.lineno, node.end_lineno or node.lineno, callee, " ".join(sorted(made.needs)),
        ast.unparse(value), key, put, scope.name,
    )  # fmt: skip


def _is_data(made: Made | None, shown: set[str]) -> bool:
    """Whether something is made of tensors, arrays and numbers that are the same each time, and of some at all."""
    return made is not None and bool(made.of) and made.weak <= shown


def _costly_branch(value: ast.expr, values: Values) -> ast.expr:
    """Of a choice the branch that computes something, if only one does and nothing is known of when that is."""
    while isinstance(value, ast.IfExp) and values.of(value) is None:
        costly = [one for one in (value.body, value.orelse) if not _is_cheap(one)]
        if len(costly) != 1:
            break
        value = costly[0]
    return value


def _is_cheap(value: ast.expr) -> bool:
    """Whether nothing is computed."""
    return not any(isinstance(one, ast.Call | ast.BinOp) for one in ast.walk(value))


def _is_size(value: ast.expr | None) -> bool:
    """Whether something is at most a number, or a few."""
    return value is None or all(last_name(one.func) in SHAPE_CALLS for one in calls_in(value))


def _makes(value: ast.expr, values: Values) -> bool:
    """Whether a library makes tensors or arrays in it of nothing but numbers."""
    return any(last_name(one.func) in MAKES and values.full_name(one.func) for one in calls_in(value))


def _takes_nothing(value: ast.expr) -> bool:
    """Whether an expression takes next to nothing: a part of a tensor, another view of it, or one number throughout."""
    if any(isinstance(one, ast.BinOp) for one in ast.walk(value)):
        return False
    return all(isinstance(one.func, ast.Attribute) and one.func.attr in VIEWS | FILLED for one in calls_in(value))


def _is_view_of_other(value: ast.expr | None) -> bool:
    """Whether what a name is given may be something that is known by another name as well."""
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
        return True
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in VIEWS


def _given(call: ast.Call, values: Values) -> str:
    """What of a call's arguments is the same, as ``SourceGiven`` has it; "" where nothing is."""
    found, any_fixed = [], False
    named = [
        *((str(at), one) for at, one in enumerate(call.args)),
        *((one.arg or "", one.value) for one in call.keywords),
    ]
    for place, value in named:
        if isinstance(value, ast.Starred) or not place:
            return ""
        made = values.of(value)
        any_fixed |= made is not None and bool(made.of)
        found.append(place if made is None else f"{place}={','.join(sorted(made.needs))}")
    return " ".join(found) if any_fixed else ""


def _local_values(inside: Sequence[ast.AST], *, writes: bool = False) -> dict[str, list[ast.expr | None]]:
    """Names that get values, with these; None for one that is not seen.

    Args:
        inside: what runs.
        writes: what is written into a name counts as a value of it, too.
    """
    found: dict[str, list[ast.expr | None]] = {}
    for node in inside:
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=value) if value is not None:
                targets = [target]
            case ast.For(target=target, iter=value):
                targets, value = [target], value if writes else None
            case ast.AugAssign(target=target):
                targets, value = [target], node.value if writes else None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if writes and (
                is_in_place(method) or method in CHANGES_CONTAINER
            ):
                found.setdefault(name, []).extend([*node.args, *(one.value for one in node.keywords)])
                continue
            case ast.withitem(optional_vars=target) | ast.NamedExpr(target=target) if target is not None:
                targets, value = [target], None
            case _:
                continue
        for target in targets:
            for name, at in _stored(target, writes):
                found.setdefault(name, []).extend([value, *at])
    return found


def _stored(target: ast.expr, writes: bool) -> Iterator[tuple[str, list[ast.expr]]]:
    """The names that a target gives values, with the places in them at which these are written."""
    match target:
        case ast.Name(id=name):
            yield name, []
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _stored(part, writes)
        case ast.Starred(value=value):
            yield from _stored(value, writes)
        case ast.Subscript(value=ast.Name(id=name), slice=at) if writes:
            yield name, [at]


def _conditional(scope: ast.AST) -> set[str]:
    """Names that get a value under some condition, or in some rounds only."""
    blocks = (
        one for one in written_in(scope, but=RUN_ELSEWHERE) if isinstance(one, ast.If | ast.Try | Loop | ast.Match)
    )
    return {
        one.id
        for block in blocks
        for one in written_in(block, but=RUN_ELSEWHERE)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }


_PURE_STATEMENTS = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Return, ast.Expr, ast.Assert, ast.Pass,
    ast.Raise, ast.Break, ast.Continue, ast.Import, ast.ImportFrom,
)  # fmt: skip


def _may_be_pure(node: ast.AST) -> bool:
    """Whether a statement, or what is not one, may be in a function that changes nothing."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return all(map(_is_own_place, targets))
    if isinstance(node, ast.With):
        return all(last_name(getattr(one.context_expr, "func", one.context_expr)) in NO_GRADIENTS for one in node.items)
    return not isinstance(node, ast.stmt) or isinstance(node, _PURE_STATEMENTS)


def _is_own_place(target: ast.expr) -> bool:
    """Whether what is given a value is a name, or a part of what has one."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(_is_own_place, parts))
        case ast.Name() | ast.Subscript(value=ast.Name()):
            return True
    return False


def _expressions(inside: Sequence[ast.AST]) -> Iterator[ast.expr | None]:
    """All that is computed in a function besides what names are given: conditions, results, and calls for nothing."""
    for node in inside:
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test):
                yield test
            case ast.Return(value=value):
                yield value
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(), attr=method)) as call) if (
                is_in_place(method) or method in CHANGES_CONTAINER
            ):
                yield from (*call.args, *(one.value for one in call.keywords))
            case ast.Expr(value=value):
                yield value
            case _:
                pass
