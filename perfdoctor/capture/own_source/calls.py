"""Calls in the job's own source that advice may change or that begin a backward pass, as they are written.

So are those that take gradients through which a backward pass goes later.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from perfdoctor.capture.own_source.gradients import find_part_optimizer, find_untrained, find_unused_passes
from perfdoctor.capture.own_source.syntax import Place, targets_of
from perfdoctor.capture.redact import mask_source
from perfdoctor.knowledge.libraries import (
    BACKWARD,
    CALLED_NAMES,
    CALLED_PACKAGES,
    COMM_HOOK,
    GRADIENT,
    HOLDS_BACK,
    IN_GRAPH,
    LOADERS,
    PADS_ALL,
    THREADS,
)
from perfdoctor.recording.own_source import SourceCall
from perfdoctor.results.edits import first_name, last_name

# Longer ones are not found again at a glance, and so many calls of a file are enough to know that there are several.
_LINES, _CALLS = 20, 64
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)


def find_calls(file: str, tree: ast.Module, lines: Sequence[str]) -> list[SourceCall]:
    """The calls in a file of Python source.

    One with a secret in it is left out: it could not be written down as it stands.

    Args:
        file: as stacks name it.
        tree: its syntax.
        lines: of the file.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    unused = [*find_unused_passes(tree), *find_untrained(tree)]
    reader = _Reader(tree, unused)
    reader.visit(tree)
    used = {call for loops in reader.training for call in reader.gone_over(loops)}
    train = {loop.scope for loops in reader.training for loop in loops}
    for_nothing = [*unused, find_part_optimizer(tree)]
    return [
        SourceCall(
            file,
            call.place.lineno,
            text,
            call.name,
            call.scope.function,
            False if call.call in for_nothing else _is_used(call, used, train),
        )
        for call in sorted(reader.calls, key=lambda call: call not in used)[:_CALLS]
        if call.name not in THREADS or call.scope.is_module or call.scope in train
        if (text := text_of(lines, call.place))
    ]


@dataclass(eq=False)
class _Scope:
    """What names are bound in: a module, a class or a function with its parameters."""

    is_module: bool = False
    of_class: ast.ClassDef | None = None
    function: str = ""
    parameters: list[str] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)


@dataclass(eq=False)
class _ParsedCall:
    name: str
    call: ast.Call
    statement: ast.stmt
    scope: _Scope

    @property
    def place(self) -> ast.stmt | ast.Call:
        """What is written down of it."""
        return self.statement if isinstance(self.statement, _SIMPLE) else self.call

    @property
    def targets(self) -> set[str]:
        """The names that what it makes gets."""
        return {ast.unparse(target) for target in targets_of(self.statement) if isinstance(target, Place)}


class _Loop(NamedTuple):
    """A loop, and the names in what it goes over."""

    names: frozenset[str]
    scope: _Scope


class _Invocation(NamedTuple):
    """A call of a function by its name alone."""

    function: str
    call: ast.Call
    scope: _Scope

    def given(self, parameters: Sequence[str], parameter: str) -> ast.expr | None:
        """What is given for a parameter."""
        at = parameters.index(parameter)
        if at < len(self.call.args):
            return self.call.args[at]
        return next((one.value for one in self.call.keywords if one.arg == parameter), None)


class _Reader(ast.NodeVisitor):
    """Goes through a file.

    Attributes:
        calls: of backward passes, those that pad every text to one length, those that are wanted, and what else is
            looked for, where it is known to be of ``CALLED_PACKAGES``.
        training: for each call of a backward pass the loops around it in its function, the innermost one first.
    """

    def __init__(self, tree: ast.Module, wanted: Collection[ast.Call]) -> None:
        self._wanted = wanted
        self.calls: list[_ParsedCall] = []
        self.training: set[tuple[_Loop, ...]] = set()
        self._made: defaultdict[str, list[_ParsedCall]] = defaultdict(list)
        self._invocations: list[_Invocation] = []
        self._imported = dict(_imports(tree))
        self._scope = _Scope(is_module=True, function="<module>")
        self._loops: tuple[_Loop, ...] = ()
        self._statement: ast.stmt | None = None

    def visit(self, node: ast.AST) -> None:
        """A node, and all below it."""
        before = self._statement
        if isinstance(node, ast.stmt):
            self._statement = node
        super().visit(node)
        self._statement = before

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """What is in a class."""
        with self._inside(_Scope(of_class=node)):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """What is in a function: a loop around it is none of its own."""
        parameters = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        with self._inside(_Scope(False, self._scope.of_class, node.name, parameters)):
            self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        """What is in a loop; not so what follows where it ends by itself."""
        names = frozenset(ast.unparse(one) for one in ast.walk(node.iter) if isinstance(one, Place))
        for one in (node.target, node.iter, *node.orelse):
            self.visit(one)
        outside, self._loops = self._loops, (_Loop(names, self._scope), *self._loops)
        for statement in node.body:
            self.visit(statement)
        self._loops = outside

    visit_AsyncFor = visit_For

    def visit_arg(self, node: ast.arg) -> None:
        """A parameter."""
        self._scope.bound.add(node.arg)

    def visit_Name(self, node: ast.Name) -> None:
        """A name that gets a value."""
        if isinstance(node.ctx, ast.Store):
            self._scope.bound.add(node.id)

    def visit_Call(self, node: ast.Call) -> None:
        """A call."""
        name = last_name(node.func)
        is_method = isinstance(node.func, ast.Attribute)
        trains, exchanges = is_method and name == BACKWARD, is_method and name in (COMM_HOOK, *HOLDS_BACK)
        if trains:
            self.training.add(self._loops)
        looked_for = name in CALLED_NAMES or (name == GRADIENT and _stays_in_graph(node))
        known = looked_for and self._package(node.func) in CALLED_PACKAGES
        wanted = trains or exchanges or known or _pads_all(node) or node in self._wanted
        if self._statement is not None and wanted:
            call = _ParsedCall(name, node, self._statement, self._scope)
            self.calls.append(call)
            for target in call.targets:
                self._made[target].append(call)
        if isinstance(node.func, ast.Name):
            self._invocations.append(_Invocation(name, node, self._scope))
        self.generic_visit(node)

    def gone_over(self, loops: Iterable[_Loop]) -> list[_ParsedCall]:
        """What the innermost of some loops goes over that goes over anything which is made here."""
        for loop in loops:
            names = {*self._names(loop)}
            made = [call for name, scope in names for call in self._made[name] if _is_known(name, scope, call)]
            if made:
                return made
        return []

    def _names(self, loop: _Loop) -> Iterator[tuple[str, _Scope]]:
        """The names in what a loop goes over, and where they stand; for a parameter, those that are given."""
        for name in loop.names:
            yield name, loop.scope
            for one in self._invocations if name in loop.scope.parameters else ():
                given = one.given(loop.scope.parameters, name) if one.function == loop.scope.function else None
                if isinstance(given, Place):
                    yield ast.unparse(given), one.scope

    @contextmanager
    def _inside(self, scope: _Scope) -> Iterator[None]:
        outside = self._scope, self._loops
        self._scope, self._loops = scope, ()
        yield
        self._scope, self._loops = outside

    def _package(self, function: ast.expr) -> str:
        """From which package a function comes; "" where that is not known."""
        return self._imported.get(first_name(function), self._imported.get("*", ""))


def _pads_all(call: ast.Call) -> bool:
    """Whether it is asked to pad every text to one length."""
    return any(PADS_ALL.fullmatch(ast.unparse(one)) for one in call.keywords)


def _stays_in_graph(call: ast.Call) -> bool:
    """Whether a backward pass goes through gradients later; also where that is decided while the job runs."""
    given = [one.value for one in call.keywords if one.arg == IN_GRAPH]
    return any(not isinstance(value, ast.Constant) or bool(value.value) for value in given)


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """By the names under which they are known, from which packages things come; a relative one is the job's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield one.asname or one.name.partition(".")[0], one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            package = "" if node.level else (node.module or "").partition(".")[0]
            for one in node.names:
                # Of several that import all, one of ``CALLED_PACKAGES`` may be meant.
                if one.name != "*" or package in CALLED_PACKAGES:
                    yield one.asname or one.name, package


def _is_known(name: str, scope: _Scope, call: _ParsedCall) -> bool:
    """Whether a name stands for the same where a call gave it to what it made."""
    if "." in name:
        return call.scope.of_class is scope.of_class
    return call.scope is scope or (call.scope.is_module and name not in scope.bound)


def _is_used(call: _ParsedCall, used: Collection[_ParsedCall], train: Collection[_Scope]) -> bool | None:
    if call.name not in LOADERS:
        return None
    if call in used:
        return True
    # What has a name where the loop is, and is not what that goes over, is there for something else.
    beside = call.scope.is_module or call.scope in train
    return False if call.targets and beside and train else None


def text_of(lines: Sequence[str], node: ast.stmt | ast.expr) -> str:
    """The source of a statement or an expression; "" where it is long, or where something in it looks like a secret."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    if last - first >= _LINES:
        return ""
    masked = mask_source(lines, range(first, last + 1))
    if any(masked[at] != lines[at] for at in masked):
        return ""
    text = [line.encode() for line in lines[first : last + 1]]  # columns are counted in bytes
    text[-1] = text[-1][: node.end_col_offset]
    text[0] = text[0][node.col_offset :]
    return b"\n".join(text).decode()
