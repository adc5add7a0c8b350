"""Where the job's own source draws at random: what runs after that may give another result each time."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from perfdoctor.capture.own_source.syntax import Function, Loop, full_names, pairs_of
from perfdoctor.knowledge.libraries import (
    DRAWING_TRANSFORM,
    DRAWS,
    DRAWS_OF_GENERATORS,
    FILLS,
    GENERATORS,
    TRANSFORMS,
    WHOLE_NUMBERS,
)
from perfdoctor.recording.own_source import SourceDraw
from perfdoctor.results.edits import last_name


def find_draws(file: str, tree: ast.Module) -> list[SourceDraw]:
    """Where Python source draws at random: the first draw of each function, and of each loop in one.

    Draws that only say which sample comes next (shuffled, chosen, used as an index) are none. Calls of functions of
    the same file that draw are some.

    Args:
        file: as stacks name it.
        tree: its syntax.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    return _DrawReader(file, tree).find()


class _CallInLoop(NamedTuple):
    """A call.

    Attributes:
        loop: the innermost one around it in its function.
        says_which: it gives a whole number that is the index of something.
    """

    call: ast.Call
    loop: Loop | None
    says_which: bool


class _DrawReader:
    """Reads a file."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        self._file = file
        self._imported = dict(full_names(ast.walk(tree)))
        self._functions = {node: _calls_in(node) for node in ast.walk(tree) if isinstance(node, Function)}
        self._module = _calls_in(tree)
        self._generators = self._assigned(tree, GENERATORS.__contains__)
        self._transforms = self._assigned(tree, _draws_when_called)
        self._drawing: set[str] = set()

    def find(self) -> list[SourceDraw]:
        """The first draws."""
        called = {function: {last_name(one.call.func) for one in some} for function, some in self._functions.items()}
        self._drawing = {function.name for function, some in self._functions.items() if self._draws(some)}
        while found := {one.name for one, names in called.items() if names & self._drawing} - self._drawing:
            self._drawing |= found
        # What a script draws before its loops, it draws once.
        in_loops = [one for one in self._draws(self._module) if one.loop]
        in_functions = (self._first(self._draws(some), function) for function, some in self._functions.items())
        return [*self._first(in_loops, None), *chain.from_iterable(in_functions)]

    def _first(self, draws: Sequence[_CallInLoop], function: Function | None) -> list[SourceDraw]:
        """The first draw in each loop, and the first one of the function in none."""
        first: dict[Loop | Function | None, int] = {}
        for call, loop, _ in draws:
            around = loop or function
            first[around] = min(call.lineno, first.get(around, call.lineno))
        return [
            SourceDraw(self._file, line, around.end_lineno or line, isinstance(around, Loop))
            for around, line in first.items()
            if around
        ]

    def _draws(self, calls: Sequence[_CallInLoop]) -> list[_CallInLoop]:
        return [one for one in calls if not one.says_which and self._draws_at_random(one.call)]

    def _draws_at_random(self, call: ast.Call) -> bool:
        module, _, name = self._path(call.func).rpartition(".")
        last = last_name(call.func)
        if name in DRAWS.get(module, ()) or last in FILLS or last in self._transforms or last in self._drawing:
            return True
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        return of is not None and last in DRAWS_OF_GENERATORS and last_name(of) in self._generators

    def _assigned(self, tree: ast.Module, makes: Callable[[str], bool]) -> set[str]:
        """The last names of what calls of some kind made, alone or in something else."""
        return {
            last_name(target)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target, value in pairs_of(node)
            if any(isinstance(one, ast.Call) and makes(self._path(one.func)) for one in ast.walk(value))
        } - {""}

    def _path(self, function: ast.expr) -> str:
        """The full name of what is called, ``numpy.random.rand``; "" where it was not imported."""
        names: list[str] = []
        while isinstance(function, ast.Attribute):
            names.append(function.attr)
            function = function.value
        if not isinstance(function, ast.Name) or function.id not in self._imported:
            return ""
        return ".".join([self._imported[function.id], *reversed(names)])


def _draws_when_called(path: str) -> bool:
    """Whether a class is a library's transform that draws."""
    return path.partition(".")[0] in TRANSFORMS and path.rpartition(".")[2].startswith(DRAWING_TRANSFORM)


def _calls_in(scope: ast.Module | Function) -> list[_CallInLoop]:
    """The calls in a function, without those in functions inside of it."""

    indices = _only_say_which(scope)

    def walk(node: ast.AST, loop: Loop | None) -> Iterator[_CallInLoop]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                continue
            if isinstance(child, ast.Call):
                yield _CallInLoop(child, loop, child in indices)
            yield from walk(child, child if isinstance(child, Loop) else loop)

    return [*walk(scope, None)]


def _only_say_which(scope: ast.AST) -> set[ast.expr]:
    """Draws of whole numbers that are the index of something."""
    indices = [node.slice for node in ast.walk(scope) if isinstance(node, ast.Subscript)]
    names = {one.id for one in indices if isinstance(one, ast.Name)}
    kept = [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and names.issuperset(map(last_name, node.targets))
    ]
    return {one for one in (*indices, *kept) if isinstance(one, ast.Call) and last_name(one.func) in WHOLE_NUMBERS}
