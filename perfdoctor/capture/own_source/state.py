"""Where a loop of the job's own makes something of what it changes itself: nobody else could make that ahead of it.

A replay buffer is such: each round adds to it, or sets the priorities by which the next round draws from it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence

from perfdoctor.capture.own_source.loops import WRITES
from perfdoctor.capture.own_source.syntax import RUN_ELSEWHERE, Loop, Place, arguments, names_imported
from perfdoctor.recording.own_source import SourceState
from perfdoctor.results.edits import written_in

# What says in which order, or from which seed: whoever makes the batches can be told likewise.
_ORDERS = frozenset(("shuffle", "seed", "manual_seed", "set_epoch"))


def find_stateful(file: str, tree: ast.Module) -> list[SourceState]:
    """Assignments and calls in loops that are made of, or are given, what is changed in the same loop, and the changes.

    A loop changes what it calls a method of with arguments and without use for the result (``buffer.push(item)``), and
    what it sets items of. What is made anew in each round is none of that, nor what is imported. What is made of
    something that is made so counts as well: the answer to an action that an agent chose which learns in the loop.

    Args:
        file: as stacks name it.
        tree: its syntax.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    imported = {*names_imported(ast.walk(tree))}
    found: set[SourceState] = set()
    for loop in (node for node in ast.walk(tree) if isinstance(node, Loop)):
        inside = [*written_in(loop, but=RUN_ELSEWHERE)]  # what runs in each round
        made = _given_in(inside)
        changes = [
            (path, node) for node in inside if (path := _changed(node)) and path.partition(".")[0] not in imported
        ]
        changed, filled = ({path for path, node in some} - made for some in (changes, filter(_fills, changes)))
        statements = [node for node in inside if isinstance(node, ast.stmt)]
        made_of = [node for node in statements if _is_made_of(node, changed) or _is_given(node, filled)]
        made_of += _made_further(set(statements) - set(made_of), made_of)
        used = {path for node in made_of for path in changed & _names(node)}
        made_of += [node for node in statements if any(_changed(one) in used for one in (node, *_targets(node)))]
        found |= {SourceState(file, node.lineno, node.end_lineno or node.lineno) for node in made_of}
    return sorted(found)


def _targets(statement: ast.stmt) -> Sequence[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else ()


def _made_further(statements: Collection[ast.stmt], made_of: Iterable[ast.stmt]) -> list[ast.stmt]:
    """The statements that give a name to what is made of what others give names to, one after the other."""
    found: list[ast.stmt] = []
    left, given = set(statements), _given_by(made_of)
    while further := [node for node in left if _is_made_of(node, given)]:
        found += further
        left -= set(further)
        given = _given_by(further)
    return found


def _given_by(statements: Iterable[ast.stmt]) -> set[str]:
    """The variables and attributes that get a value in some assignments."""
    return _given_in(node for statement in statements for target in _targets(statement) for node in ast.walk(target))


def _given_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Of some nodes the names and attributes that get another value."""
    return {ast.unparse(node) for node in nodes if isinstance(node, Place) and isinstance(node.ctx, ast.Store)}


def _changed(node: ast.AST) -> str:
    """What a statement changes without giving it another value; "" for nothing."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _path(node.value)
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and (call.args or call.keywords):
        return "" if call.func.attr in _ORDERS else _path(call.func.value)
    return ""


def _fills(change: tuple[str, ast.AST]) -> bool:
    """Whether it may put data in: not so what loggers and writers are given, nor what a model's weights are set to."""
    _, node = change
    call = node.value if isinstance(node, ast.Expr) else None
    method = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    return not method.startswith((*WRITES, "load"))


def _is_made_of(statement: ast.AST, things: Collection[str]) -> bool:
    """Whether a statement gives a name to what it makes of some things."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    return value is not None and not _names(value).isdisjoint(things)


def _is_given(statement: ast.AST, things: Collection[str]) -> bool:
    """Whether a statement is a call that some things are handed to, as in ``agent.learn(buffer)``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    return any(_path(one) in things for one in arguments(call) if isinstance(one, Place))


def _path(node: ast.expr) -> str:
    """The name of a variable or an attribute, ``self.buffer``; "" of anything else."""
    below = node
    while isinstance(below, ast.Attribute):
        below = below.value
    return ast.unparse(node) if isinstance(below, ast.Name) else ""


def _names(value: ast.AST) -> set[str]:
    """The variables and attributes of which an expression is made."""
    return {_path(node) for node in ast.walk(value) if isinstance(node, Place)} - {""}
