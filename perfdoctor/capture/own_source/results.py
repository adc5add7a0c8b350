"""Where the job's own source hands over numbers that it has read out of tensors, and takes nothing back: it tells them.

A call that gives nothing to the step and is given losses and accuracies is made for whoever follows the training.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from perfdoctor.capture.own_source.syntax import RUN_ELSEWHERE, Loop, arguments, names_stored
from perfdoctor.knowledge.libraries import GIVES_NUMBERS
from perfdoctor.recording.own_source import SourceResult
from perfdoctor.results.edits import last_name, written_in


def find_results(file: str, tree: ast.Module) -> list[SourceResult]:
    """Calls in loops whose value nobody takes, and that are given numbers read out of tensors.

    Args:
        file: as stacks name it.
        tree: its syntax.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    found: set[SourceResult] = set()
    for loop in (node for node in ast.walk(tree) if isinstance(node, Loop)):
        inside = [*written_in(loop, but=RUN_ELSEWHERE)]
        numbers = {name for node in inside for name in _numbers_of(node)}
        found |= {
            SourceResult(file, node.lineno, node.end_lineno or node.lineno)
            for node in inside
            if isinstance(node, ast.Expr) and _is_given(node.value, numbers)
        }
    return sorted(found)


def _numbers_of(node: ast.AST) -> Iterator[str]:
    """The names that a statement gives to what it reads out."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None and _reads(node.value):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from names_stored(one for target in targets for one in ast.walk(target))


def _is_given(call: ast.expr, numbers: Collection[str]) -> bool:
    """Whether a call is given numbers, by themselves or in a table or a list that is made for it."""
    if not isinstance(call, ast.Call):
        return False
    given = [one for argument in arguments(call) for one in ast.walk(argument)]
    return any(map(_reads, given)) or any(isinstance(one, ast.Name) and one.id in numbers for one in given)


def _reads(value: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and last_name(one.func) in GIVES_NUMBERS for one in ast.walk(value))
