"""What an expression of the job's own source is made of, where it gives the same whenever it is made of the same."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from perfdoctor.capture.own_source.syntax import is_in_place
from perfdoctor.knowledge.detours import SHAPES
from perfdoctor.knowledge.pure_calls import (
    COMPUTING_BUILTINS,
    COMPUTING_MODULES,
    DRAWING_WORDS,
    OTHER_FUNCTIONS,
    PARTS_OF_GRAPHS,
    PARTS_OF_TENSORS,
    TENSOR_METHODS,
    WRITES_INTO_FIRST,
)
from perfdoctor.results.edits import last_name

_SIZE_CALLS = frozenset(("size", "dim", "ndimension", "numel", "nelement", "element_size", "is_floating_point"))
_PARTS = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Slice,
    ast.JoinedStr, ast.FormattedValue, ast.Starred,
)  # fmt: skip


class Made(NamedTuple):
    """What something is made of that is the same whenever these are.

    Attributes:
        needs: the function's own parameters, ``"1:edges"`` for the second one after ``self``.
        of: names and attributes as they are written: those parameters, and what is given a value once.
        sizes: sizes of tensors, which mostly are the same.
        weak: of those, the ones of which nothing yet shows that they are tensors, arrays or numbers.
        parts: of those, the ones of which parts are taken: whatever these are shows nothing of the whole.
    """

    needs: frozenset[str] = frozenset()
    of: frozenset[str] = frozenset()
    sizes: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()

    def joined(self, other: Made) -> Made:
        """What something is made of that is made of both."""
        return Made(*(one | another for one, another in zip(self, other, strict=True)))

    def named(self, name: str) -> Made:
        """The same of a size that has a name: it is what that stands for, whatever becomes of its tensor."""
        return Made(sizes=frozenset((name,))) if self.sizes and not self.of else self

    def as_data(self) -> Made:
        """The same where it is used as only tensors, arrays and numbers are."""
        return self._replace(weak=self.parts)

    def in_parts(self) -> Made:
        """What its parts are made of: a loader, say, has others each time."""
        return self._replace(parts=self.weak)


CONSTANT = Made()
# What a call of the job's own gives, by what it is given: None where it is not known to be the same.
OwnCall = Callable[[ast.Call, "Values"], Made | None]


class Values:
    """What names stand for in one function, and what expressions are made of there.

    Args:
        names: what each known name stands for.
        imported: the full name of what each imported name stands for, ``{"F": "torch.nn.functional"}``.
        attribute: what ``self.NAME`` stands for, by NAME.
        own_call: what calls of the job's own functions give.
    """

    def __init__(
        self,
        names: Mapping[str, Made],
        imported: Mapping[str, str],
        attribute: Callable[[str], Made | None],
        own_call: OwnCall,
    ) -> None:
        self.names = dict(names)
        self._imported, self._attribute, self._own_call = imported, attribute, own_call

    def of(self, node: ast.AST | None) -> Made | None:
        """What an expression is made of; None where that is not known, or not the same each time."""
        match node:
            case None | ast.Constant():
                return CONSTANT
            case ast.Name(id=name):
                return self.names.get(name)
            case ast.Attribute():
                return self._of_attribute(node)
            case ast.Subscript(value=value, slice=at):
                whole, place = self.of(value), self.of(at)
                if whole is None or place is None:
                    return None
                if isinstance(value, ast.Attribute) and value.attr in SHAPES and place == CONSTANT and not whole.of:
                    return Made(sizes=frozenset((ast.unparse(node),)))
                if isinstance(at, ast.Constant) and isinstance(at.value, str):
                    return whole.as_data()  # of a configuration
                return (whole if _is_written_out(at) else whole.in_parts()).joined(place)
            case ast.Call():
                return self._of_call(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return self._of_comprehension(node)
            case ast.BinOp() | ast.UnaryOp():
                made = self.all_of(one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
                return made and made.as_data()
            case _ if isinstance(node, _PARTS):
                return self.all_of(one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
        return None

    def all_of(self, nodes: Iterable[ast.AST | None]) -> Made | None:
        """What several expressions are made of, all of them."""
        found = CONSTANT
        for node in nodes:
            made = self.of(node)
            if made is None:
                return None
            found = found.joined(made)
        return found

    def given(self, call: ast.Call) -> Made | None:
        """What the arguments of a call are made of."""
        return self.all_of((*call.args, *(one.value for one in call.keywords)))

    def full_name(self, function: ast.expr) -> str:
        """Of what is imported the name with its module, ``torch.nn.functional.relu``; "" of anything else."""
        names: list[str] = []
        while isinstance(function, ast.Attribute):
            names.append(function.attr)
            function = function.value
        root = self._imported.get(function.id, "") if isinstance(function, ast.Name) else ""
        return ".".join((root, *reversed(names))) if root else ""

    def is_computing(self, call: ast.Call) -> bool:
        """Whether a call is one of a library's functions that compute, or of a tensor's methods by its name."""
        name = last_name(call.func)
        if isinstance(call.func, ast.Attribute) and name.removesuffix("_") in TENSOR_METHODS:
            return True
        return self.full_name(call.func).rpartition(".")[0] in COMPUTING_MODULES

    def _of_attribute(self, node: ast.Attribute) -> Made | None:
        if node.attr in SHAPES:
            return self._size(node, node.value)
        if self.full_name(node):
            return CONSTANT  # torch.float32, math.pi
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._attribute(node.attr)
        if node.attr in PARTS_OF_TENSORS and (made := self.of(node.value)) is not None:
            return made.as_data()
        if node.attr in PARTS_OF_GRAPHS and (made := self.of(node.value)) is not None:
            return Made(made.needs, frozenset((ast.unparse(node),)))
        return None

    def _of_call(self, call: ast.Call) -> Made | None:
        name, function = last_name(call.func), call.func
        if isinstance(function, ast.Attribute) and name in _SIZE_CALLS and not self.full_name(function):
            return self._size(call, function.value)
        if isinstance(function, ast.Name) and name == "len" and name not in self.names:
            return self._size(call, call.args[0]) if call.args else None
        if (full := self.full_name(function)) and full.rpartition(".")[0] in COMPUTING_MODULES:
            return self._of_library(call, full)
        if isinstance(function, ast.Attribute) and self._is_tensor_method(function):
            made = self.all_of((function.value, *call.args, *(one.value for one in call.keywords)))
            return made and made.as_data()
        if isinstance(function, ast.Name) and name in COMPUTING_BUILTINS and name not in self.names:
            made = self.given(call)
            return made and made.in_parts()
        return self._own_call(call, self)

    def _size(self, node: ast.expr, whole: ast.expr) -> Made:
        """What a size is made of: of what was made of something else, that."""
        made = self.of(whole)
        text = ast.unparse(node)
        return Made(sizes=frozenset((text,))) if made is None or ast.unparse(whole) in made.of else made.as_data()

    def _of_library(self, call: ast.Call, full: str) -> Made | None:
        name = full.rpartition(".")[2]
        if name in OTHER_FUNCTIONS | WRITES_INTO_FIRST or any(word in name for word in DRAWING_WORDS):
            return None
        if name[:1].isupper() or is_in_place(name) or any(one.arg == "out" for one in call.keywords):
            return None
        made = self.given(call)
        return made and made.as_data()

    def _is_tensor_method(self, function: ast.Attribute) -> bool:
        """Whether a method gives something new, or writes into what was made just there."""
        if is_in_place(function.attr):
            return function.attr[:-1] in TENSOR_METHODS and isinstance(function.value, ast.Call)
        return function.attr in TENSOR_METHODS

    def _of_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Made | None:
        inner = Values(self.names, self._imported, self._attribute, self._own_call)
        found = CONSTANT
        for one in node.generators:
            made = inner.of(one.iter)
            if made is None:
                return None
            made = made.in_parts()
            found = found.joined(made)
            for name in (part.id for part in ast.walk(one.target) if isinstance(part, ast.Name)):
                inner.names[name] = made
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        made = inner.all_of((*parts, *(test for one in node.generators for test in one.ifs)))
        return made and found.joined(made)


def _is_written_out(at: ast.expr) -> bool:
    """Whether it is said where a part begins and ends."""
    return all(isinstance(one, ast.Constant | ast.Slice | ast.Tuple | ast.UnaryOp | ast.expr_context | ast.unaryop)
               for one in ast.walk(at))  # fmt: skip
