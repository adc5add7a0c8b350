"""What names stand for in each function of the job's own source, as far as it is the same whenever it is needed."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from perfdoctor.capture.own_source.changes import (
    attributes_changed,
    is_of_model,
    names_changed,
    names_shared,
    places,
)
from perfdoctor.capture.own_source.sameness import CONSTANT, Made, OwnCall, Values
from perfdoctor.capture.own_source.syntax import (
    RUN_ELSEWHERE,
    Function,
    Loop,
    arguments,
    calls_in,
    full_names,
    names_in,
    names_stored,
    targets_of,
)
from perfdoctor.knowledge.libraries import BACKWARD
from perfdoctor.knowledge.pure_calls import TENSOR_METHODS
from perfdoctor.results.edits import last_name, written_in

_SELF = ("self", "cls")
# A value that is not written there, such as what a loop goes over gives.
_UNSEEN = ast.Call(ast.Name("Unseen", ast.Load()), [], [])


@dataclass(eq=False)
class Scope:
    """A function of the job's own, a method, or a module.

    Attributes:
        file: that it is in.
        node: it.
        owner: the class whose method it is.
        imported: the full names of what the file imports, by the names that they have there.
    """

    file: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
    owner: ast.ClassDef | None
    imported: Mapping[str, str]

    @property
    def name(self) -> str:
        """As frames have it, without its class."""
        return getattr(self.node, "name", "<module>")

    @cached_property
    def inside(self) -> list[ast.AST]:
        """All that runs when it is called."""
        return list(written_in(self.node, but=RUN_ELSEWHERE))

    @cached_property
    def parameters(self) -> list[str]:
        """Its parameters by place, without ``self``, and those that are given by name after them."""
        if isinstance(self.node, ast.Module):
            return []
        given = self.node.args
        names = [one.arg for one in (*given.posonlyargs, *given.args)]
        static = any(last_name(one) == "staticmethod" for one in self.node.decorator_list)
        return names[1 if self.owner is not None and not static else 0 :] + [one.arg for one in given.kwonlyargs]

    def as_parameter(self, name: str) -> Made:
        """What a name stands for when the function begins: nothing, if it is none of the parameters."""
        if name not in self.parameters:
            return CONSTANT
        return _named(name)._replace(needs=frozenset((f"{self.parameters.index(name)}:{name}",)))

    @cached_property
    def assigned(self) -> Sequence[tuple[str, ast.expr]]:
        """The names that are given something, with that, and those of what is written into."""
        return list(_assigned(self.inside))

    @cached_property
    def stored(self) -> set[str]:
        """The names that stand for something of its own, the parameters among them."""
        return {*names_stored(self.inside), *self.parameters}

    def stored_outside(self, loop: ast.stmt) -> set[str]:
        """Of those the ones that get a value outside of a loop."""
        within = {id(one) for one in ast.walk(loop)}
        return {*names_stored(one for one in self.inside if id(one) not in within), *self.parameters}

    @cached_property
    def changed(self) -> set[str]:
        """The names that are written into, or get another value, also by functions that are written in it."""
        everything = list(ast.walk(self.node))
        return names_changed(everything) | names_shared(everything)

    @property
    def calls(self) -> Iterator[ast.Call]:
        """The calls in it."""
        return (one for one in self.inside if isinstance(one, ast.Call))


class Source:
    """All of the job's own source that was read.

    Args:
        files: the syntax of each file.
    """

    def __init__(self, files: Mapping[str, ast.Module]) -> None:
        nodes = {file: list(ast.walk(tree)) for file, tree in files.items()}
        self.scopes = [scope for file, tree in files.items() for scope in _scopes(file, tree, nodes[file])]
        self._changed_attributes = attributes_changed(chain.from_iterable(nodes.values()))
        self._changed_attributes |= {name for scope in self.scopes for name in _given_later(scope)}
        self._follow_changes()
        self._made_by = _makers(self.scopes)
        self.functions = _unique(one for one in self.scopes if one.owner is None)
        self.methods = _unique(one for one in self.scopes if one.owner is not None)
        self._by_class: defaultdict[str, dict[str, Scope]] = defaultdict(dict)
        for scope in self.scopes:
            if scope.owner is not None:
                self._by_class[scope.owner.name][scope.name] = scope
        self._modules = {one.file: one for one in self.scopes if isinstance(one.node, ast.Module)}
        self._globals = {file: _given_once(one, nodes[file]) for file, one in self._modules.items()}
        self._training = self._that_train()

    def _follow_changes(self) -> None:
        """What is handed to a function that writes into it is written into where that is called, too."""
        by_name: defaultdict[str, list[Scope]] = defaultdict(list)
        for scope in self.scopes:
            by_name[scope.name].append(scope)
        calls = [(scope, call) for scope in self.scopes for call in scope.calls if last_name(call.func) in by_name]
        found = True
        while found:
            found = False
            for scope, call in calls:
                for place in _written_into(call, by_name[last_name(call.func)]):
                    name, changed = (
                        (place.id, scope.changed)
                        if isinstance(place, ast.Name)
                        else (getattr(place, "attr", ""), self._changed_attributes)
                    )
                    found |= name not in changed
                    changed.add(name)

    def _that_train(self) -> set[str]:
        """The names of functions that make a backward pass, or call one that does."""
        called = {name: {last_name(call.func) for call in scope.calls}
                  for name, scope in (*self.functions.items(), *self.methods.items())}  # fmt: skip
        training = {BACKWARD}
        while found := {name for name, calls in called.items() if calls & training} - training:
            training |= found
        return training

    def training_loop(self, scope: Scope) -> ast.stmt | None:
        """The outermost loop of a scope in which backward passes are made."""
        for node in scope.inside:
            if isinstance(node, Loop):
                calls = (one for one in written_in(node, but=RUN_ELSEWHERE) if isinstance(one, ast.Call))
                if any(last_name(one.func) in self._training for one in calls):
                    return node
        return None

    def called(self, call: ast.Call, scope: Scope) -> tuple[Scope | None, str]:
        """The function or method of the job's own that a call in a scope calls, and whose it is; "" for nobody's."""
        match call.func:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if scope.owner is not None:
                own = self._by_class[scope.owner.name].get(name) or self.methods.get(name)
                return (own, "self") if own is not None else self._object(call.func, scope)
            case ast.Attribute(value=of, attr=name):
                return self._by_class.get(self._class_of(of, scope), {}).get(name), ast.unparse(of)
            case ast.Name(id=name) if name not in scope.stored and name in self.functions:
                return self.functions[name], ""
        return self._object(call.func, scope)

    def _object(self, of: ast.expr, scope: Scope) -> tuple[Scope | None, str]:
        """What is called where an object is."""
        methods = self._by_class.get(self._class_of(of, scope), {})
        return methods.get("__call__") or methods.get("forward"), ast.unparse(of)

    def _class_of(self, of: ast.expr, scope: Scope) -> str:
        """The class of the job's own that something is an object of, which is made once; "" where that is not seen."""
        match of:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if scope.owner in self._made_by:
                value = self._made_by[scope.owner].attributes.get(name)
            case ast.Name(id=name):
                around = scope if name in scope.stored else self._modules[scope.file]
                values = [value for stored, value in around.assigned if stored == name]
                value = values[0] if len(values) == 1 else None
            case _:
                return ""
        return last_name(value.func) if isinstance(value, ast.Call) else ""

    def attribute(self, scope: Scope, name: str) -> Made | None:
        """What an attribute of a scope's class stands for."""
        first = self._made_by.get(scope.owner) if scope.owner is not None else None
        value = first.attributes.get(name) if first is not None else None
        if first is None or value is None or name in self._changed_attributes:
            return None
        local = dict(first.scope.assigned)
        for _ in range(len(local)):  # through names of its own
            if not isinstance(value, ast.Name) or value.id not in local:
                break
            value = local[value.id]
        handed = isinstance(value, ast.Name) and value.id in first.scope.parameters and first.is_given_model
        return None if handed or not self._is_given(value) or _is_object(value) else _as_given(f"self.{name}", value)

    def base(self, scope: Scope, loop: ast.stmt | None) -> dict[str, Made]:
        """What names stand for in a scope that get no value there; of one with a loop that trains, none in the loop."""
        stored = {*names_stored(scope.inside)}
        found = {name: made for name, made in self._globals[scope.file].items() if name not in stored}
        if loop is None:
            found |= {name: scope.as_parameter(name) for name in scope.parameters if name not in stored}
        else:
            values = dict(scope.assigned)
            before = {*scope.parameters, *stored} - {*names_stored(ast.walk(loop))}
            found |= {name: _as_given(name, values.get(name)) for name in before if self._is_given(values.get(name))}
        return {name: made for name, made in found.items() if name not in scope.changed}

    def _is_given(self, value: ast.expr | None) -> bool:
        """Whether a value is hardly one that training changes: a model's, or what a function makes for one."""
        calls = calls_in(value) if value is not None else ()
        called = (self.functions.get(last_name(one.func)) for one in calls)
        return not is_of_model(value) and not any(is_of_model(one.node) for one in called if one is not None)

    def values(self, scope: Scope, names: Mapping[str, Made], own_call: OwnCall) -> Values:
        """What names stand for in a scope, as far as some are known."""
        return Values(names, scope.imported, lambda name: self.attribute(scope, name), own_call)


def _written_into(call: ast.Call, called: Iterable[Scope]) -> Iterator[ast.expr]:
    """What a call gives to functions that write into it, and all that this is a part of."""
    for scope in called:
        given = [*zip(scope.parameters, call.args, strict=False), *((one.arg, one.value) for one in call.keywords)]
        for name, value in given:
            if name in scope.changed and name in scope.parameters:
                yield from places(value)


def _unique(scopes: Iterable[Scope]) -> dict[str, Scope]:
    """Those whose name no other has."""
    found: defaultdict[str, list[Scope]] = defaultdict(list)
    for scope in scopes:
        found[scope.name].append(scope)
    return {name: only for name, (only, *others) in found.items() if not others}


def proven(scope: Scope, values: Values) -> set[str]:
    """Names and attributes that are used in a scope as only tensors, arrays and numbers are."""
    found: set[str] = set()
    for node in scope.inside:
        operands: Sequence[ast.expr] = ()
        if isinstance(node, ast.BinOp):
            operands = (node.left, node.right)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if values.full_name(node.func).startswith(("torch.", "numpy.", "scipy.")):
                operands = node.args
            elif node.func.attr in TENSOR_METHODS - {"copy", "values", "sort", "index"}:
                operands = (node.func.value,)
        elif isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype"):
            operands = (node.value,)
        found |= {ast.unparse(one) for one in operands if isinstance(one, ast.Name | ast.Attribute)}
    return found


def _named(name: str) -> Made:
    return Made(of=frozenset((name,)), weak=frozenset((name,)))


def _scopes(file: str, tree: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[Scope]:
    """The functions of a file, and the file itself.

    Args:
        file: as stacks name it.
        tree: its syntax.
        nodes: all that is in that.
    """
    imported = dict(full_names(nodes))
    owners = {id(one): node for node in nodes if isinstance(node, ast.ClassDef) for one in node.body}
    yield Scope(file, tree, None, imported)
    for node in nodes:
        if isinstance(node, Function):
            yield Scope(file, node, owners.get(id(node)), imported)


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names with what they are given."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((name, node.value) for target in targets for name in names_in(target))


def _given_once(module: Scope, everything: Sequence[ast.AST]) -> dict[str, Made]:
    """Of a module's names what they stand for wherever they are read: those with one value, which nobody changes.

    Args:
        module: it.
        everything: that is in it, functions included.
    """
    stored = Counter(names_stored(module.inside))
    changed = names_changed(everything) | names_shared(everything)
    loops = {name for one in module.inside if isinstance(one, Loop) for name in names_stored(ast.walk(one))}
    return {
        name: _as_given(name, value)
        for name, value in module.assigned
        if stored[name] == 1 and name not in changed | loops and not is_of_model(value)
    }


@dataclass
class _Maker:
    """A class's ``__init__``.

    Attributes:
        scope: it.
        attributes: of ``self`` that get one value in all of the class, and here, with that value.
        is_given_model: somewhere it may be given what training changes.
    """

    scope: Scope
    attributes: Mapping[str, ast.expr]
    is_given_model: bool


def _makers(scopes: Iterable[Scope]) -> dict[ast.ClassDef, _Maker]:
    """Of each class how objects of it are made."""
    methods: defaultdict[ast.ClassDef, list[Scope]] = defaultdict(list)
    given_model: set[str] = set()
    for scope in scopes:
        given_model |= {last_name(call.func) for call in scope.calls if any(map(is_of_model, arguments(call)))}
        if scope.owner is not None:
            methods[scope.owner].append(scope)
    found: dict[ast.ClassDef, _Maker] = {}
    for owner, some in methods.items():
        stores = [(name, value, scope) for scope in some for node in scope.inside for name, value in _of_self(node)]
        times = Counter(name for name, _, _ in stores)
        for first in (scope for scope in some if scope.name == "__init__"):
            once = {name: value for name, value, scope in stores if scope is first and times[name] == 1}
            found[owner] = _Maker(first, once, owner.name in given_model)
    return found


def _of_self(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The attributes of ``self`` that a statement gives a value, with that, registered buffers included."""
    targets = targets_of(node)
    if targets:
        value = getattr(node, "value", None) or _UNSEEN
        for one in (part for target in targets for part in ast.walk(target)):
            if isinstance(one, ast.Attribute) and ast.unparse(one.value) in _SELF and isinstance(one.ctx, ast.Store):
                yield one.attr, value
    elif isinstance(node, ast.Call) and last_name(node.func) == "register_buffer":
        match node.args:
            case [ast.Constant(value=str(name)), value, *_]:
                yield name, value


def _given_later(scope: Scope) -> Iterator[str]:
    """The attributes that a function gives values, whosever they are, but for what an object begins with."""
    given = (one for one in scope.inside if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load))
    begins = scope.name == "__init__"
    yield from (one.attr for one in given if not (begins and ast.unparse(one.value) in _SELF))


def _is_object(value: ast.expr) -> bool:
    """Whether something is hardly a tensor, an array or a number: what a class is called for."""
    return isinstance(value, ast.Call) and last_name(value.func)[:1].isupper()


def _as_given(text: str, value: ast.expr | None) -> Made:
    """What something stands for that gets one value: what is written down there, or that which has the name."""
    nodes = ast.walk(value) if value is not None else [ast.Name(text)]
    written_down = not any(isinstance(one, ast.Name | ast.Call) for one in nodes)
    return CONSTANT if written_down else _named(text)
