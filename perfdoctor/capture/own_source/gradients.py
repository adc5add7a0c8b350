"""Gradients that the job's own source has computed and that nobody uses.

Whoever trains the last layer of a model passes ``model.head.parameters()`` to the optimizer. That alone stops no
gradient: the backward pass goes through the whole model, and what it computes for the rest is thrown away. Likewise
where a discriminator is trained with what a generator makes: the backward pass goes on through the generator, whose
gradients are cleared before its own optimizer steps. And likewise where a teacher that only evaluates is called beside
what learns from it, and nothing says that its parameters get no gradients.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from perfdoctor.capture.own_source.syntax import Function, Loop, Place, targets_of
from perfdoctor.knowledge.detours import COPIES
from perfdoctor.knowledge.libraries import (
    BACKWARD,
    DETACHES,
    EVALUATES,
    FREEZES,
    LEAVES_GRAPH,
    NO_GRADIENTS,
    TAKES_NO_PARAMETERS,
    UPDATES,
)
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


def find_untrained(tree: ast.Module) -> list[ast.Call]:
    """Where modules are told to evaluate that a step calls with gradients and no optimizer takes; and these calls.

    A call is left out where its statement calls a module that is trained as well: what each takes is not seen there.

    Args:
        tree: the syntax of the file.
    """
    trained = set(_optimized(tree).values())
    frees = FREEZES - DETACHES
    if not trained or any(last_name(node) in frees for node in ast.walk(tree) if isinstance(node, Place)):
        return []
    found: list[ast.Call] = []
    for module, call in {name: call for node in ast.walk(tree) for name, call in _evaluates(node)}.items():
        if passes := [*_untrained_passes(tree, module)] if _is_untrained(tree, module, trained) else []:
            found.append(call)
            found += [one for one, statement in passes if trained.isdisjoint(_called(statement))]
    return found


def _evaluates(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The modules that a statement tells to evaluate, as they are written, each with the call: ``teacher.eval()``."""
    call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == EVALUATES:
        names = node.targets if isinstance(node, ast.Assign) else [call.func.value]
        yield from ((ast.unparse(name), call) for name in names if isinstance(name, Place))


def _is_untrained(tree: ast.Module, module: str, trained: set[str]) -> bool:
    """Whether a module is never told to train, and is no part of what is trained, nor that of it."""
    if any(module == one or module.startswith(f"{one}.") or one.startswith(f"{module}.") for one in trained):
        return False
    harmless = TAKES_NO_PARAMETERS | {"zip"}
    kept = {id(node) for call in _calls(tree) if last_name(call.func) in harmless for node in ast.walk(call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in kept and ast.unparse(node.value) == module:
            if node.attr in ("parameters", "named_parameters", "train"):
                return False
        elif isinstance(node, ast.Assign) and not _copies(node.value):  # one may have layers of the other
            names = set(map(ast.unparse, node.targets))
            of = {ast.unparse(one) for one in ast.walk(node.value) if isinstance(one, Place)}
            if (module in names and of & trained) or (module in of and names & trained):
                return False
    return True


def _copies(value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in COPIES


def _untrained_passes(tree: ast.Module, module: str) -> Iterator[tuple[ast.Call, ast.AST]]:
    """The calls of a module in a step through which its backward pass goes, each with its statement."""
    for step in _steps(tree):
        nodes = [*ast.walk(step)]
        without = {id(call) for node in nodes if _is_without_gradients(node) for call in _calls(node)}
        for statement in nodes:
            is_simple = isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return)
            for call in _calls(statement) if is_simple else ():
                is_pass = ast.unparse(call.func) == module and id(call) not in without
                if is_pass and not _leaves_graph(nodes, call, statement):
                    yield call, statement


def _leaves_graph(nodes: Iterable[ast.AST], call: ast.Call, statement: ast.AST) -> bool:
    """Whether what a call makes is used without its graph, by itself or under the name that it gets."""
    names = set(map(ast.unparse, targets_of(statement)))

    def is_of_it(value: ast.AST) -> bool:
        return any(one is call or (isinstance(one, Place) and ast.unparse(one) in names) for one in ast.walk(value))

    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in LEAVES_GRAPH and is_of_it(node.value):
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in LEAVES_GRAPH and any(map(is_of_it, node.args)):
            return True
    return False


def _called(statement: ast.AST) -> set[str]:
    return {ast.unparse(call.func) for call in _calls(statement)}


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


def lines_without_gradients(tree: ast.Module) -> frozenset[int]:
    """The lines at which no gradients are recorded, as far as that is written around them."""
    blocks = (node for node in ast.walk(tree) if _is_without_gradients(node))
    return frozenset(line for node in blocks for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _is_without_gradients(node: ast.AST) -> TypeGuard[ast.With | ast.FunctionDef]:
    """Whether it is a block or a function in which no gradients are recorded."""
    if isinstance(node, ast.FunctionDef):
        return any(last_name(getattr(one, "func", one)) in NO_GRADIENTS for one in node.decorator_list)
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
