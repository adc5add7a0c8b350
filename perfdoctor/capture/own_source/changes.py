"""What the job's own source changes without giving it another value: by writing into it, or by training it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perfdoctor.capture.own_source.syntax import is_in_place
from perfdoctor.knowledge.libraries import IN_PLACE
from perfdoctor.knowledge.pure_calls import NOT_OF_TENSORS, OF_MODELS, VIEWS, WRITES_INTO_FIRST
from perfdoctor.results.edits import last_name


def changed_places(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Of some nodes the names and attributes that are written into, or that an optimizer is given."""
    for node in nodes:
        match node:
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield from places(node.value)
            case ast.AugAssign(target=target):
                yield from places(target)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if (
                is_in_place(method) or method in NOT_OF_TENSORS
            ):
                yield from places(value)
            case _:
                pass
        if isinstance(node, ast.Call):
            yield from (place for one in node.keywords if one.arg in IN_PLACE for place in places(one.value))
            name = last_name(node.func)
            if node.args and (name in WRITES_INTO_FIRST or is_in_place(name)):
                yield from places(node.args[0])
            if any(one.arg == "lr" for one in node.keywords):  # of an optimizer
                yield from (one for given in node.args for one in ast.walk(given) if isinstance(one, ast.expr))


def names_changed(nodes: Iterable[ast.AST]) -> set[str]:
    """The names among them."""
    return {one.id for one in changed_places(nodes) if isinstance(one, ast.Name)}


def names_shared(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that functions may give values that are not theirs alone."""
    return {name for one in nodes if isinstance(one, ast.Global | ast.Nonlocal) for name in one.names}


def attributes_changed(nodes: Iterable[ast.AST]) -> set[str]:
    """The attributes among them, by their own names, whatever they are attributes of."""
    return {one.attr for one in changed_places(nodes) if isinstance(one, ast.Attribute)}


def is_of_model(value: ast.AST | None) -> bool:
    """Whether something may hold numbers that training changes."""
    nodes = ast.walk(value) if value is not None else ()
    words = (getattr(node, "attr", getattr(node, "id", getattr(node, "arg", None))) for node in nodes)
    return any(word in OF_MODELS for word in words)


def places(node: ast.expr) -> Iterator[ast.expr]:
    """A place and all that it is a part of or a view into: ``self.bank``, ``self`` of ``self.bank.view(-1)[3]``."""
    while True:
        if isinstance(node, ast.Name):
            yield node
            return
        if isinstance(node, ast.Attribute):
            yield node
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last_name(node.func) in VIEWS:
            node = node.func.value
        else:
            return
