"""Attention that the job's own source writes out: queries by keys, a softmax, and its weights by values."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from perfdoctor.capture.own_source.syntax import factors_of, names_read, only_target
from perfdoctor.knowledge.detours import BATCHED_PRODUCTS, SOFTMAX, TURNS
from perfdoctor.results.edits import last_name


class _Made(NamedTuple):
    """What an expression makes on the way from queries and keys to what attention gives.

    Attributes:
        begun: the statement with the first product.
        queries: as they are written.
        keys: without what turns them.
        weighted: the softmax is behind it.
        values: of what attention gives, as they are written; "" before.
    """

    begun: ast.stmt
    queries: str
    keys: str
    weighted: bool = False
    values: str = ""


def find_attention(statements: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt, tuple[str, str, str]]]:
    """The statements from the first product to the last, with what is written for queries, keys and values.

    Weights that something else reads too have to be there.

    Args:
        statements: of one function, without those of others in it.
    """
    known: dict[str, _Made] = {}
    kept: set[str] = set()  # names of weights
    on_the_way: list[ast.stmt] = []
    found: list[tuple[ast.stmt, ast.stmt, tuple[str, str, str]]] = []
    for statement in sorted(statements, key=lambda one: one.lineno):
        if not isinstance(statement, ast.Assign | ast.Return) or statement.value is None:
            continue
        made = _made_by(statement.value, known, statement)
        on_the_way += [statement] if made else []
        if made and made.values:
            found.append((made.begun, statement, (made.queries, made.keys, made.values)))
        elif isinstance(target := only_target(statement), ast.Name):
            known.pop(target.id, None)
            if made:
                known[target.id] = made
                kept |= {target.id} if made.weighted else set()
    others = [one for one in statements if one not in on_the_way]
    if not _reads(others, kept) and all(_reads([last], kept) <= 1 for _, last, _ in found):
        yield from found


def _reads(statements: Iterable[ast.stmt], names: Collection[str]) -> int:
    """How often statements read names, without the statements that they are made of: these are others."""
    parts = (child for one in statements for child in ast.iter_child_nodes(one) if not isinstance(child, ast.stmt))
    return sum(name in names for part in parts for name in names_read(ast.walk(part)))


def _made_by(node: ast.AST, known: dict[str, _Made], statement: ast.stmt) -> _Made | None:
    """What an expression makes of attention; what else is done to it on the way, masks and scales, changes nothing."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if (factors := factors_of(node, BATCHED_PRODUCTS)) is not None:
        left, right = factors
        if (keys := _turned(right)) is not None:
            return _Made(statement, ast.unparse(left), ast.unparse(keys))
        made = _made_by(left, known, statement)
        return made._replace(values=ast.unparse(right)) if made and made.weighted and not made.values else None
    parts = (_made_by(child, known, statement) for child in ast.iter_child_nodes(node))
    made = next((part for part in parts if part is not None), None)
    if made and isinstance(node, ast.Call) and last_name(node.func) in SOFTMAX:
        return made._replace(weighted=True)
    return made


def _turned(node: ast.expr) -> ast.expr | None:
    """What has two of its dimensions changed, without that."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TURNS:
        return node.func.value
    return node.value if isinstance(node, ast.Attribute) and node.attr in TURNS else None
