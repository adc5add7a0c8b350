"""Loops in the job's own source that one operation on all of it may stand for."""

from __future__ import annotations

import ast
import builtins
import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from io import TextIOWrapper
from queue import Queue

from perfdoctor.capture.own_source.syntax import COMPREHENSIONS, Place, arguments, calls_in, names_in, yields
from perfdoctor.knowledge.detours import SHAPE_CALLS
from perfdoctor.knowledge.libraries import BACKWARD, DRAWS
from perfdoctor.recording.own_source import SourceComprehension, SourceLoop
from perfdoctor.results.edits import last_name

# Methods that take what they are given, and those of loggers, TensorBoard, matplotlib and the like that write it down.
_TAKES = {name for kind in (list, set, dict, deque, Queue, TextIOWrapper, logging.Logger) for name in dir(kind)}
_TAKES.add(BACKWARD)  # gradients are added up
# Of these, those that put something at an end of a list.
_GROWS = ("append", "appendleft", "extend")
WRITES = ("add_", "log", "print", "write", "plot", "draw", "save", "dump")


def find_loops(file: str, tree: ast.Module) -> Iterator[SourceLoop | SourceComprehension]:
    """The loops and comprehensions in Python source, but those over what they call (layers, transforms), those over
    things that the source lists or gives names one by one, and those of generators.

    Args:
        file: as stacks name it.
        tree: its syntax.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    named = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign) and _names_each(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.While):
            if not yields(node):
                yield _loop(file, node, carries=_carries(node.body, ()))
        elif isinstance(node, ast.For | ast.AsyncFor):
            if not _lists(node.iter) and not _calls(node.target, node.iter, node.body) and not yields(node):
                yield _loop(file, node, carries=_carries(node.body, names_in(node.target)))
        elif isinstance(node, COMPREHENSIONS) and id(node) not in named:
            made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            listed = all(_lists(one.iter) for one in node.generators)
            made_first = _is_made_here(node.generators[0].iter)
            if not listed and not made_first and not any(_calls(one.target, one.iter, made) for one in node.generators):
                yield _loop(file, node, carries=False)
                yield SourceComprehension(file, node.lineno, node.end_lineno or node.lineno, _called(node, made))


def _loop(file: str, node: ast.stmt | ast.expr, *, carries: bool) -> SourceLoop:
    return SourceLoop(file, node.lineno, node.end_lineno or node.lineno, carries)


def _called(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, made: Iterable[ast.expr]) -> str:
    """The last names of what a comprehension's rounds call."""
    tests = (test for one in node.generators for test in one.ifs)
    parts = (*made, *tests, *(one.iter for one in node.generators[1:]))
    calls = (one for part in parts for one in calls_in(part))
    return " ".join(sorted({last_name(one.func) for one in calls} - {""}))


def _names_each(node: ast.Assign) -> bool:
    """Whether an assignment gives each thing that its value has a name of its own."""
    return any(
        isinstance(target, ast.Tuple | ast.List) and not any(isinstance(one, ast.Starred) for one in target.elts)
        for target in node.targets
    )


def _lists(over: ast.expr) -> bool:
    """Whether what a loop goes over is written down, one by one."""
    return isinstance(over, ast.Tuple | ast.List) and not any(isinstance(one, ast.Starred) for one in over.elts)


def _is_made_here(over: ast.expr) -> bool:
    """Whether the job's own code makes what a comprehension goes over: once, at the same line."""
    calls = calls_in(over)
    return any(call.args and _keeps_something(call.func) for call in calls)


def _carries(body: Sequence[ast.stmt], over: Collection[str]) -> bool:
    """Whether something is read in a round before it gets the value that the next round will read.

    Sums and counters alone are not that: each round adds something of its own.

    Args:
        body: of the loop.
        over: the names that each round gets another value of.
    """
    if (
        _reads_filled(body)
        or _grows_from_itself(body)
        or _acts(body)
        or _asks_the_same(body, over)
        or any(_changes_state(part, over) for part in _in_order(body))
    ):
        return True
    needed: set[str] = set()
    given: set[str] = set()
    kept: set[str] = set()
    for part in _in_order(body):
        target, value = _sum(part)
        if target:
            needed |= _places(value, ast.Load) - given
            kept |= set() if isinstance(value, ast.Constant) else {target}
        else:
            needed |= _places(part, ast.Load) - given
            given |= _places(part, ast.Store)
    return any(name.partition(".")[0] not in over for name in needed & (given | kept))


def _changes_state(statement: ast.AST, over: Collection[str]) -> bool:
    """Whether a call is made for what it changes, as its result is not used: the next round may find that.

    What each round goes over has a state of its own. Collections and logs only take what they are given, and tensors
    are changed by methods with an underscore at the end.
    """
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    function = statement.value.func
    if isinstance(function, ast.Name):
        return function.id not in dir(builtins)
    if not isinstance(function, ast.Attribute) or _name_of(function).partition(".")[0] in over:
        return False
    return not (function.attr in _TAKES or function.attr.startswith(WRITES) or function.attr.endswith("_"))


def _asks_the_same(body: Sequence[ast.AST], over: Collection[str]) -> bool:
    """Whether a function is given the same in each round: if it gives something else, it keeps something of its own.

    Methods of what the job has made may change that; draws at random need no other draw.
    """
    changing = {name.partition(".")[0] for part in _in_order(body) for name in _places(part, ast.Store)} | {*over}
    return any(
        isinstance(one, ast.Call) and _keeps_something(one.func) and _is_given_the_same(one, changing)
        for part in _in_order(body)
        for one in ast.walk(part)
    )


def _keeps_something(function: ast.expr) -> bool:
    """Whether what is called may be the job's own: a function, a module that it has, or a method of its own class."""
    if isinstance(function, ast.Name):
        return function.id not in dir(builtins) and not any(function.id in names for names in DRAWS.values())
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "self"


def _is_given_the_same(call: ast.Call, changing: Collection[str]) -> bool:
    """Whether a call has arguments, and none is one of the names that get another value in each round."""
    names = set[str]().union(*map(names_in, arguments(call)))
    return bool(names) and not (names | names_in(call.func)) & {*changing}


def _reads_filled(body: Sequence[ast.AST]) -> bool:
    """Whether something is read of what other rounds may have filled: all of it, or another element than is filled."""
    filled: dict[str, set[str]] = {}
    read: dict[str, set[str]] = {}
    given: set[str] = set()
    for part in _in_order(body):
        elements = [one for one in ast.walk(part) if isinstance(one, ast.Subscript)]
        for element in elements:
            where = filled if isinstance(element.ctx, ast.Store) else read
            if (name := _name_of(element.value)) not in given:
                where.setdefault(name, set()).add(ast.unparse(element.slice))
        of_elements = {id(element.value) for element in elements}
        for one in ast.walk(part):
            if isinstance(one, Place) and id(one) not in of_elements and _is_read(one):
                read.setdefault(_name_of(one), set()).add("")
        given |= _places(part, ast.Store)
    return any(read.get(name, set()) - elements for name, elements in filled.items())


def _grows_from_itself(body: Sequence[ast.AST]) -> bool:
    """Whether something is made of an element of a list to which the rounds add, ``states.append(step(states[-1]))``.

    What a line that only writes things down reads of it is nothing that the next round needs.
    """
    statements = [part for part in _in_order(body) if isinstance(part, ast.Assign | ast.AnnAssign | ast.Expr)]
    grown = {id(part): name for part in statements if (name := _grown(part))}
    given = set[str]().union(*(_places(part, ast.Store) for part in statements))
    for part in statements:
        if isinstance(part, ast.Expr) and id(part) not in grown:
            continue
        for one in ast.walk(part):
            if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load):
                name = _name_of(one.value)
                if name in grown.values() and name not in given:
                    return True
    return False


def _acts(body: Sequence[ast.AST]) -> bool:
    """Whether a thing is told what a round made and asked for something else besides, as an environment is.

    Tensors are asked for their sizes, and methods that end with an underscore change what is theirs.
    """
    told, asked = set[str](), set[str]()
    made = set[str]().union(*(_places(part, ast.Store) for part in _in_order(body)))
    for part in _in_order(body):
        for call in calls_in(part):
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, Place):
                thing = _name_of(call.func.value)
                if not arguments(call) and call.func.attr not in SHAPE_CALLS:
                    asked.add(thing)
                elif made & set[str]().union(*map(names_in, arguments(call))):
                    told.add(thing)
    return bool(told & asked - made)


def _grown(statement: ast.stmt) -> str:
    """The list to which a statement adds; "" for none."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _GROWS:
        return _name_of(call.func.value)
    return ""


def _in_order(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The simple statements of a body as they are written, and the heads of the compound ones."""
    for statement in body:
        blocks = [getattr(statement, name, []) for name in ("body", "handlers", "orelse", "finalbody")]
        if not isinstance(statement, ast.stmt | ast.ExceptHandler) or not any(blocks):
            yield statement
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = {id(one) for block in blocks for one in block}
            yield from (one for one in ast.iter_child_nodes(statement) if id(one) not in inside)
            for block in blocks:
                yield from _in_order(block)


def _sum(statement: ast.AST) -> tuple[str, ast.expr]:
    """What a statement adds to, and what it adds; "" where it does nothing of that kind."""
    match statement:
        case ast.AugAssign(target=ast.Name() | ast.Attribute() as target, value=value):
            return _name_of(target), value
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=ast.BinOp(left=left, right=right)):
            name = _name_of(target)
            for same, other in ((left, right), (right, left)):
                if _name_of(same) == name and name not in _places(other, ast.Load):
                    return name, other
    return "", ast.Constant(None)


def _places(node: ast.AST, how: type[ast.expr_context]) -> set[str]:
    """Names and attributes that are read, or get a value; the names of a comprehension's own are others."""
    if isinstance(node, COMPREHENSIONS):
        return _places_around(node, how)
    found = {_name_of(node)} if isinstance(node, Place) and isinstance(node.ctx, how) else set[str]()
    return found.union(*(_places(child, how) for child in ast.iter_child_nodes(node)))


def _places_around(comprehension: ast.expr, how: type[ast.expr_context]) -> set[str]:
    """What a comprehension reads of the function around it, or gives a value there."""
    parts = [*ast.iter_child_nodes(comprehension)]
    generators = [part for part in parts if isinstance(part, ast.comprehension)]
    own = set[str]().union(*(_places(one.target, ast.Store) for one in generators))
    inside = {name for part in parts for name in _places(part, how) if name.partition(".")[0] not in own}
    return inside | _places(generators[0].iter, how)  # the first is looked up outside


def _is_read(place: Place) -> bool:
    return isinstance(place.ctx, ast.Load)


def _name_of(place: ast.expr) -> str:
    """A name, or an attribute with what it is of; as it would be written, but without the detour over that."""
    if isinstance(place, ast.Name):
        return place.id
    return f"{_name_of(place.value)}.{place.attr}" if isinstance(place, ast.Attribute) else ast.unparse(place)


def _calls(target: ast.expr, over: ast.expr, body: Sequence[ast.AST]) -> bool:
    """Whether what a loop goes over is called in it: itself, what has its number, or of what an object keeps a part."""
    names = names_in(target)
    kept = any(isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self" for one in _not_called(over))
    for statement in body:
        for one in ast.walk(statement):
            if not isinstance(one, ast.Call):
                continue
            function = one.func
            if isinstance(function, ast.Attribute):
                # A tensor's methods are called in the same way as an object's layers.
                if kept and isinstance(function.value, ast.Name) and function.value.id in names and one.args:
                    return True
            elif any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(function)):
                return True
    return False


def _not_called(over: ast.expr) -> Iterator[ast.expr]:
    """What a loop goes over: the thing itself, or what ``zip`` and ``enumerate`` are given."""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name):
        for argument in over.args:
            yield from _not_called(argument)
    else:
        yield over
