"""What the job's own source makes in each step although it is made of sizes and constants alone."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from perfdoctor.capture.own_source.syntax import RUN_ELSEWHERE, Function, Loop, arguments, names_imported, names_stored
from perfdoctor.knowledge.detours import FILLED, MAKES, SHAPE_CALLS, SHAPES
from perfdoctor.knowledge.libraries import BACKWARD, DRAWS
from perfdoctor.results.edits import first_name, last_name, written_in

_DRAWN = frozenset().union(*DRAWS.values())


def find_made_again(tree: ast.Module) -> Iterator[tuple[ast.stmt, tuple[str, str, str]]]:
    """Statements of forward passes and of loops that train, with what they make again, and of which sizes.

    Yields:
        The statement; the call as it is written, what it depends on, and the name that it gets.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    once = _written_once(tree)
    makers = {*MAKES, *_makers(tree, once)}
    fixed = {*makers, *once}
    for scope in (node for node in ast.walk(tree) if isinstance(node, Function)):
        if scope.name == "forward":
            body = list(written_in(scope, but=RUN_ELSEWHERE))
        else:
            loops = [one for one in written_in(scope, but=RUN_ELSEWHERE) if isinstance(one, Loop) and _trains(one)]
            body = [node for loop in loops[:1] for node in written_in(loop, but=RUN_ELSEWHERE)]
        known = _Known(scope, fixed, makers)
        for statement in body:
            if (
                isinstance(statement, ast.Assign | ast.Return | ast.Expr | ast.AnnAssign)
                and statement.value is not None
            ):
                for call in known.outermost(statement.value):
                    name = known.name_of(statement, call)
                    if not _is_filled(call) and not known.is_written(statement):
                        yield statement, (ast.unparse(call), ", ".join(known.sizes(call)), name)


def _trains(loop: ast.stmt) -> bool:
    return any(isinstance(one, ast.Call) and last_name(one.func) == BACKWARD for one in ast.walk(loop))


def _makers(tree: ast.Module, once: set[str]) -> Iterator[str]:
    """Functions of the file that give the same for the same: they draw nothing, and read and write nothing else."""
    around = {*dir(builtins), *names_imported(tree.body), *once}
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef) and not one.decorator_list}
    for name, function in functions.items():
        nodes = list(ast.walk(function))
        own = {one.arg for one in nodes if isinstance(one, ast.arg)}
        own |= {*names_stored(nodes)}
        read = {one.id for one in nodes if isinstance(one, ast.Name)} - own - around
        calls = {last_name(one.func) for one in nodes if isinstance(one, ast.Call)}
        other = any(isinstance(one, ast.Global | ast.Nonlocal | ast.Yield | ast.Await) for one in nodes)
        gives = any(isinstance(one, ast.Return) and one.value is not None for one in nodes)
        if gives and not other and not read and not calls & {*_DRAWN, "print", "open", "input", "time"}:
            yield name


def _written_once(tree: ast.Module) -> set[str]:
    """Names that a module gives a number or a text, and no other value anywhere."""
    stored = [*names_stored(ast.walk(tree))]
    names = {
        one.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_number(node.value)
        for target in node.targets
        for one in ast.walk(target)
        if isinstance(one, ast.Name)
    }
    return {name for name in names if stored.count(name) == 1}


def _is_number(value: ast.expr) -> bool:
    return all(isinstance(one, ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple | ast.operator | ast.unaryop
                          | ast.expr_context) for one in ast.walk(value))  # fmt: skip


class _Known:
    """What in a function is known to be the same where sizes are.

    Args:
        scope: the function.
        fixed: names around it that always stand for the same.
        makers: what makes the same of the same.
    """

    def __init__(self, scope: Function, fixed: set[str], makers: set[str]) -> None:
        self._makers = makers
        nodes = list(written_in(scope, but=()))
        self._written = {
            ast.unparse(one.value) for one in nodes if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store)
        } | {ast.unparse(one.target) for one in nodes if isinstance(one, ast.AugAssign)}
        self._written |= {
            ast.unparse(one.func.value)
            for one in nodes
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr.endswith("_")
        }
        stored = [*names_stored(nodes)]
        self._fixed = {name for name in fixed if name not in stored}
        self._sizes: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Assign) and self.is_size(node.value):
                names = [one for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
                self._sizes |= {one.id for one in names if stored.count(one.id) == 1}

    def is_size(self, value: ast.expr) -> bool:
        """Whether something is made of sizes and constants alone."""
        match value:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return name in self._sizes or name in self._fixed
            case ast.Attribute(attr=name):
                return name in SHAPES or _is_constant_of_torch(value)
            case ast.Subscript(value=of, slice=at):
                return self.is_size(of) and self.is_size(at)
            case ast.Slice(lower=low, upper=high, step=step):
                return all(one is None or self.is_size(one) for one in (low, high, step))
            case ast.BinOp(left=left, right=right):
                return self.is_size(left) and self.is_size(right)
            case ast.UnaryOp(operand=operand):
                return self.is_size(operand)
            case ast.Tuple(elts=parts):
                return all(map(self.is_size, parts))
            case ast.Call(func=function, args=given):
                if last_name(function) in SHAPE_CALLS:
                    return (
                        isinstance(function, ast.Attribute)
                        or last_name(function) == "len"
                        or all(map(self.is_size, given))
                    )
                return self._makes(value) or (
                    isinstance(function, ast.Name) and function.id == "float" and all(map(self.is_size, given))
                )
        return False

    def _makes(self, call: ast.Call) -> bool:
        """Whether a call makes something of sizes alone: one that makes, or a method of what such a one has made."""
        given = arguments(call)
        if not all(map(self.is_size, given)):
            return False
        inner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(inner, ast.Call):
            return self._makes(inner) and not last_name(call.func).endswith("_")
        return last_name(call.func) in self._makers and (inner is None or first_name(inner) not in ("", "self"))

    def outermost(self, value: ast.expr) -> Iterator[ast.Call]:
        """The largest calls in an expression that make something of sizes alone."""
        if isinstance(value, ast.Call) and self._makes(value):
            yield value
            return
        if isinstance(value, ast.Call) and last_name(value.func).endswith("_"):
            return  # it is written into
        for child in ast.iter_child_nodes(value):
            if isinstance(child, ast.expr):
                yield from self.outermost(child)
            elif isinstance(child, ast.keyword):
                yield from self.outermost(child.value)

    def sizes(self, call: ast.Call) -> list[str]:
        """What of a call may differ from one step to the next."""
        found: list[str] = []
        for one in arguments(call):
            if isinstance(one, ast.Call) and self._makes(one):
                found += self.sizes(one)
            elif not self._is_fixed(one):
                found.append(ast.unparse(one))
        inner = call.func.value if isinstance(call.func, ast.Attribute) else None
        return list(dict.fromkeys([*(self.sizes(inner) if isinstance(inner, ast.Call) else []), *found]))

    def _is_fixed(self, value: ast.expr) -> bool:
        """Whether something is written down, or stands for the same always."""
        if isinstance(value, ast.Name):
            return value.id in self._fixed
        return isinstance(value, ast.Constant) or (isinstance(value, ast.Attribute) and _is_constant_of_torch(value))

    def name_of(self, statement: ast.stmt, call: ast.Call) -> str:
        """The name that what a call makes gets; "" where it is written into, or part of something."""
        target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is call else None
        return target.id if isinstance(target, ast.Name) else ""

    def is_written(self, statement: ast.stmt) -> bool:
        """Whether something is written into what a statement gives a name, whatever was made of it before."""
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        return any(ast.unparse(target) in self._written for target in targets)


def _is_filled(call: ast.Call) -> bool:
    """Whether all that is made is one number again and again, whatever its type becomes."""
    while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    return last_name(call.func) in FILLED


def _is_constant_of_torch(value: ast.Attribute) -> bool:
    """``torch.float32``, ``math.pi``: of a module with nothing in between."""
    return isinstance(value.value, ast.Name) and value.value.id in ("torch", "math", "np", "numpy")
