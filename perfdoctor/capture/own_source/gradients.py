"""Gradients that the job's own source has computed and that nobody uses.

Whoever trains the last layer of a model passes ``model.head.parameters()`` to the optimizer. That alone stops no
gradient: the backward pass goes through the whole model, and what it computes for the rest is thrown away. Likewise
where a discriminator is trained with what a generator makes: the backward pass goes on through the generator, whose
gradients are cleared before its own optimizer steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from perfdoctor.capture.own_source.syntax import Function, Loop, Place
from perfdoctor.knowledge.libraries import BACKWARD, FREEZES, NO_GRADIENTS, TAKES_NO_PARAMETERS, UPDATES
from perfdoctor.results.edits import last_name


def find_part_optimizer(tree: ast.Module) -> ast.Call | None:
    """The call that makes the only optimizer of a file, where it is given a part of a model that is called whole.

    None also where anything in the file may keep gradients away from the rest, or hand its parameters to somebody else.

    Args:
        tree: the syntax of the file.
    """
    takers = [(call, owner) for call in _calls(tree) for owner in _owners(call)]
    if len(takers) != 1 or _freezes(tree):
        return None
    call, owner = takers[0]
    whole = {ast.unparse(one.func) for one in _calls(tree) if isinstance(one.func, Place)}
    given_a_part = any(ast.unparse(above) in whole for above in _above(owner))
    return call if last_name(call.func) in UPDATES and given_a_part else None


def find_unused_passes(tree: ast.Module) -> list[ast.Call]:
    """Calls of modules whose gradients are cleared before any optimizer takes them.

    Such a module has an optimizer of its own, which clears them before the backward pass of its own step; and what it
    makes goes into another module, whose optimizer is the next to step.

    Args:
        tree: the syntax of the file.
    """
    trains = _optimized(tree)
    if len(trains) < 2:  # as in most files: nothing else could be trained by what it makes
        return []
    updates = [update for block in _blocks(tree) for update in _updates(block, trains)]
    clear = {
        module
        for module in trains.values()
        if (own := [s for s, of in updates if of == module])
        and all(_clears_first(statements, module, trains) for statements in own)
    }
    calls = [call for statements, stepped in updates for call in _goes_into(statements, stepped, clear - {stepped})]
    return list({id(call): call for call in calls}.values())


def _clears_first(statements: Sequence[ast.stmt], module: str, trains: Mapping[str, str]) -> bool:
    """Whether a module's gradients are cleared before the backward pass that leads to the step of its optimizer."""
    for statement in statements:
        for call in _calls(statement):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad":
                name = ast.unparse(call.func.value)
                if trains.get(name, name) == module:
                    return True
        if _passes_back(statement):
            return False
    return False


def _optimized(tree: ast.Module) -> dict[str, str]:
    """By the names of optimizers, how the module is written whose parameters each is given, if that is a single one."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
            owners = [ast.unparse(owner) for owner in _owners(node.value)]
            if len(owners) == 1:
                found[ast.unparse(node.targets[0])] = owners[0]
    # A module that several take is nobody's alone.
    return {name: owner for name, owner in found.items() if list(found.values()).count(owner) == 1}


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, Function | Loop | ast.With | ast.Module):
            yield node.body


def _updates(block: Sequence[ast.stmt], trains: Mapping[str, str]) -> Iterator[tuple[list[ast.stmt], str]]:
    """The statements that lead to each step of an optimizer, a backward pass among them, and the module it trains."""
    before: list[ast.stmt] = []
    for statement in block:
        stepped = {trains[name] for call in _calls(statement) if (name := _steps_of(call)) in trains}
        before.append(statement)
        if not stepped:
            continue
        own_block = isinstance(statement, Function | Loop | ast.ClassDef)
        if len(stepped) == 1 and not own_block and any(map(_passes_back, before)):
            yield before, stepped.pop()
        before = []


def _steps_of(call: ast.Call) -> str:
    """The optimizer that a call lets step: by itself, or given to a scaler of gradients; "" if none."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return ""
    return ast.unparse(call.args[0] if call.args else call.func.value)


def _goes_into(statements: Sequence[ast.stmt], module: str, others: set[str]) -> Iterator[ast.Call]:
    """Calls of other modules with gradients whose value is given to a module."""
    nodes = [node for one in statements for node in ast.walk(one)]
    if any(last_name(node) in FREEZES for node in nodes if isinstance(node, Place)):
        return
    without = {id(call) for node in nodes if _is_without_gradients(node) for call in _calls(node)}

    def passes(given: ast.AST) -> list[ast.Call]:
        return [call for call in _calls(given) if ast.unparse(call.func) in others and id(call) not in without]

    assigned = [node for node in nodes if isinstance(node, ast.Assign)]
    made = {ast.unparse(target): passes(node.value) for node in assigned for target in node.targets}
    for call in nodes:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == module:
            for given in (*call.args, *(keyword.value for keyword in call.keywords)):
                yield from passes(given)
                for name in ast.walk(given):
                    if isinstance(name, Place):
                        yield from made.get(ast.unparse(name), ())


def _is_without_gradients(node: ast.AST) -> bool:
    """Whether it is a block in which no gradients are recorded."""
    contexts = (call for item in node.items for call in _calls(item)) if isinstance(node, ast.With) else ()
    return any(last_name(call.func) in NO_GRADIENTS for call in contexts)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _owners(call: ast.Call) -> Iterator[ast.expr]:
    """Whose parameters a call is given, as they are."""
    if last_name(call.func) in TAKES_NO_PARAMETERS:
        return
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "parameters":
            yield given.func.value


def _above(owner: ast.expr) -> Iterator[ast.expr]:
    """The modules that a module is a part of, by how it is written; not the object that a method is of."""
    while isinstance(owner, ast.Attribute | ast.Subscript):
        owner = owner.value
        if not (isinstance(owner, ast.Name) and owner.id == "self"):
            yield owner


def _freezes(tree: ast.Module) -> bool:
    """Whether anything here keeps gradients away: by name, or in a context without any where a step is made."""
    named = (last_name(node) for node in ast.walk(tree) if isinstance(node, Place))
    forward = (node for node in ast.walk(tree) if isinstance(node, Function) and node.name == "forward")
    without = (call for place in (*forward, *_steps(tree)) for call in _calls(place))
    return any(name in FREEZES for name in named) or any(last_name(call.func) in NO_GRADIENTS for call in without)


def _steps(tree: ast.AST) -> Iterator[ast.AST]:
    """The innermost loops and functions around backward passes: an evaluation has a loop or a function of its own."""
    for node in ast.walk(tree):
        if isinstance(node, Function | Loop) and _passes_back(node):
            below = (one for one in ast.walk(node) if one is not node)
            if not any(isinstance(one, Function | Loop) and _passes_back(one) for one in below):
                yield node


def _passes_back(node: ast.AST) -> bool:
    return any(last_name(call.func) == BACKWARD for call in _calls(node))
