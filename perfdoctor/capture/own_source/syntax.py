"""Python's syntax, as all go through it who read the job's own source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence

from perfdoctor.results.edits import last_name

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
Place = ast.Name | ast.Attribute
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What is written in a function or a loop and runs at another time.
RUN_ELSEWHERE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
# The same, and what runs in rounds of its own.
RUN_APART = (*RUN_ELSEWHERE, ast.For, ast.AsyncFor, ast.While)


def names_stored(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Of some nodes the names that get a value, each as often as it gets one."""
    return (one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def names_read(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Of some nodes the names whose values are taken, each as often as it is."""
    return (one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))


def names_in(node: ast.AST) -> set[str]:
    """All names in an expression or a statement."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """All calls in an expression or a statement, the outermost first."""
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def targets_of(statement: ast.AST) -> list[ast.expr]:
    """What a statement gives values to, as an assignment or a loop does; nothing where it gives none."""
    found = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return [target for target in found if target is not None]


def pairs_of(statement: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What gets a value, and which: ``config, rng = Config(), default_rng()`` gives two."""
    value = statement.value
    for target in statement.targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def given_to_attributes(tree: ast.Module) -> dict[str, list[ast.expr | None]]:
    """The places ``self.head`` that are the only target of assignments, with all values; None where one has none."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(target := only_target(node), ast.Attribute):
            found.setdefault(ast.unparse(target), []).append(node.value)
    return found


def names_given(statement: ast.AST) -> set[str]:
    """All names in what a statement gives values to, those of what it writes into included."""
    return {name for target in targets_of(statement) for name in names_in(target)}


def only_target(statement: ast.stmt) -> ast.expr | None:
    """The only place that an assignment gives a value."""
    if isinstance(statement, ast.Assign):
        return statement.targets[0] if len(statement.targets) == 1 else None
    return statement.target if isinstance(statement, ast.AnnAssign) else None


def blocks_of(nodes: Iterable[ast.AST]) -> Iterator[list[ast.stmt]]:
    """The statements that run one after the other, of each of some nodes that has such."""
    for node in nodes:
        for name in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, name, None), list):
                yield block


def made_before(block: Sequence[ast.stmt], number: int) -> tuple[str, ast.expr] | None:
    """What the statement before one makes for that one alone: the name, and what is made; None where it does not."""
    first, second = block[number - 1], block[number]
    target = only_target(first) if number else None
    if not isinstance(target, ast.Name) or not isinstance(first, ast.Assign | ast.AnnAssign) or first.value is None:
        return None
    again = only_target(second)
    replaced = isinstance(again, ast.Name) and again.id == target.id
    later = [] if replaced else block[number + 1 :]
    reads = [[*names_read(ast.walk(one))].count(target.id) for one in (second, *later)]
    return (target.id, first.value) if reads[0] == sum(reads) == 1 else None


def as_operand(value: ast.expr) -> str:
    """The text of something of which an attribute is taken, or a product made."""
    text = ast.unparse(value)
    return text if isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({text})"


def factors_of(node: ast.AST, products: Collection[str]) -> tuple[ast.expr, ast.expr] | None:
    """Both factors of a product of matrices, ``a @ b``, or of a call by one of some names."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if not isinstance(node, ast.Call) or last_name(node.func) not in products:
        return None
    factors = [*([node.func.value] if isinstance(node.func, ast.Attribute) else []), *node.args][-2:]
    return (factors[0], factors[1]) if len(factors) == 2 else None


def yields(node: ast.AST) -> bool:
    """Whether a generator's values are made anywhere below."""
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))


def is_in_place(method: str) -> bool:
    """Whether a method is named as those are that write into their tensor, ``mul_``."""
    return method.endswith("_") and not method.endswith("__")


def names_imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names under which some nodes import something; of a module in a package that of the package."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((one.asname or one.name).partition(".")[0] for one in node.names)


def full_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """By the names under which they are known, the full names of what some nodes import from outside of the package."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for one in node.names:
                yield (one.asname, one.name) if one.asname else (one.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)


def arguments(call: ast.Call) -> list[ast.expr]:
    """What a call is given, by place and by name."""
    return [*call.args, *(one.value for one in call.keywords)]
