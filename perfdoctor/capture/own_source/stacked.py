"""Where the job's own source draws samples from a list and puts them together: tensors of all of them have rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from perfdoctor.capture.own_source.syntax import RUN_ELSEWHERE, Function, Place, names_in, names_stored, targets_of
from perfdoctor.knowledge.detours import DRAWS_NUMBERS, DRAWS_SAMPLES, JOINING_PACKAGES, MAKES_OF_LIST, STACKS
from perfdoctor.results.edits import first_name, last_name, written_in

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)


def find_stacked(tree: ast.Module) -> Iterator[tuple[ast.stmt, tuple[str, str]]]:
    """The statements that draw samples and that put them together, where a function does the latter.

    Each with what they are drawn from, and with what is put together there; "" where they are only drawn.

    Args:
        tree: the syntax of the file.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    gives = {function.name: kept for function in functions if (kept := _gives(function))}
    for scope in (tree, *functions):
        found = [*_in_scope(scope, gives)]
        if any(stacked for _, (_, stacked) in found):
            yield from found


def _in_scope(scope: ast.AST, gives: Mapping[str, str]) -> Iterator[tuple[ast.stmt, tuple[str, str]]]:
    """The statements of a function that draw samples or put them together."""
    taken: dict[str, str] = {}  # names of samples by themselves, and what these are from
    numbers: set[str] = set()  # names of numbers of samples
    inside = [node for node in written_in(scope, but=RUN_ELSEWHERE) if isinstance(node, _SIMPLE)]
    for statement in sorted(inside, key=lambda one: one.lineno):
        if (value := statement.value) is None:
            continue
        drawn = _drawn(value, numbers, gives)
        of = drawn or next((taken[name] for name in sorted(names_in(value)) if name in taken), "")
        stacked = _stacked(value, taken, numbers, gives) if of else ""
        for name in names_stored(node for target in targets_of(statement) for node in ast.walk(target)):
            taken.pop(name, None)
            numbers.discard(name)
            if of and not stacked:
                taken[name] = of
            elif not of and _draws_numbers(value):
                numbers.add(name)
        if stacked or drawn:
            yield statement, (of, stacked)


def _drawn(value: ast.AST, numbers: set[str], gives: Mapping[str, str]) -> str:
    """What an expression draws samples from: by a call, or by drawn numbers; "" where it draws none."""
    for node in ast.walk(value):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in gives and isinstance(owner, Place):
                return f"{ast.unparse(owner)}.{gives[name].removeprefix('self.')}"
            case ast.Call(args=[ast.Name() | ast.Attribute() as kept, *_]) if _is_call_of(node, DRAWS_SAMPLES):
                return ast.unparse(kept)
            case ast.ListComp(elt=element, generators=[ast.comprehension(target=ast.Name(id=at), iter=over, ifs=[])]):
                if (_draws_numbers(over) or names_in(over) & numbers) and (of := _at(element, at)):
                    return of
    return ""


def _at(element: ast.expr, number: str) -> str:
    """Of what an expression takes the element with a number; "" if of none."""
    for node in ast.walk(element):
        match node:
            case ast.Subscript(value=ast.Name() | ast.Attribute() as kept, slice=ast.Name(id=at)) if at == number:
                return ast.unparse(kept)
    return ""


def _stacked(value: ast.AST, taken: Mapping[str, str], numbers: set[str], gives: Mapping[str, str]) -> str:
    """What an expression puts together of samples, as it is written; "" if nothing."""
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call) and _stacks(node))
    of_samples = (
        call for call in calls if names_in(call.args[0]) & taken.keys() or _drawn(call.args[0], numbers, gives)
    )
    return next(map(ast.unparse, of_samples), "")


def _stacks(call: ast.Call) -> bool:
    """Whether a call puts several of a size together; a list of numbers that is made for it is another detour."""
    listed = last_name(call.func) in MAKES_OF_LIST and isinstance(call.args[0], ast.ListComp) if call.args else True
    return last_name(call.func) in STACKS and first_name(call.func) in (*JOINING_PACKAGES, "np") and not listed


def _gives(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """From what a method draws samples that it returns as they are; "" where it does not."""
    for statement in written_in(function, but=RUN_ELSEWHERE):
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
            of = _drawn(statement.value, set(), {})
            if of.startswith("self.") and _is_call_of(statement.value, DRAWS_SAMPLES):
                return of
    return ""


def _is_call_of(call: ast.Call, names: frozenset[str]) -> bool:
    return ast.unparse(call.func) in names


def _draws_numbers(value: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and last_name(one.func) in DRAWS_NUMBERS for one in ast.walk(value))
