"""Changes of calls where they stand in the job's own source: its text stays as it is, but for their arguments.

Of what is done in some rounds of a loop only, the condition for fewer of them.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Where there is no call yet, one is put after the imports.
AFTER_IMPORTS = 0
# With more arguments by position, one of them may be what is to be changed.
_FEW_POSITIONS = 5
# What a call refuses beside an argument, by that and its value: it is left out.
_REFUSED = {
    ("num_workers", "0"): ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"),
    ("fused", "True"): ("foreach",),
    ("bf16", "True"): ("fp16",),
    ("fp16", "True"): ("bf16",),
}
# And what it cannot be without.
_IMPOSSIBLE = {("fused", "True"): ("differentiable",)}
# The first parameters of what is often called by position, in their order (torch.utils.data.DataLoader's).
_POSITIONS = {"DataLoader": ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers")}
# Expressions that need no parentheses inside of others.
_WHOLE = (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript)


@dataclass(frozen=True, slots=True)
class Edit:
    """A place in the job's own files at which a change can be made permanent.

    Attributes:
        file: from the job's working folder.
        line: a line of the call.
        call: what is called there: a class or function by its last name.
        arguments: keywords with their values as Python; "" is the name of the only positional argument.
    """

    file: str
    line: int
    call: str
    arguments: Mapping[str, str]


def edited(source: str, edits: Sequence[Edit]) -> str:
    """The source with the edits for which a place was found.

    Raises:
        SyntaxError: the source is no Python.
    """
    parse(source)
    for edit in sorted(edits, key=lambda one: -one.line):  # what stands before keeps its line
        tree = parse(source)
        if edit.line == AFTER_IMPORTS:
            source = _with_new_call(source, tree, edit)
        elif call := _find(tree, edit):
            source = _with_call(source, call, edit.arguments) or source
    return source


def parse(source: str) -> ast.Module:
    """The syntax tree of Python source, without the warnings that the job itself has printed already.

    Raises:
        SyntaxError: it is no Python.
        ValueError: there are null bytes in it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def with_arguments(source: str, names: frozenset[str], arguments: Mapping[str, str]) -> str:
    """A piece of source with other arguments in its call of one of these names; "" where that cannot be determined.

    What an argument has now stands for its name in the new value: ``batch_size`` becomes ``2 * 64`` by
    ``2 * batch_size``. Other names are nothing that the source need have.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return ""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and last_name(node.func) in names]
    if len(calls) != 1:
        return ""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in calls[0].keywords if keyword.arg}
    given |= {name: ast.unparse(value) for name, value in zip(_positions(calls[0]), calls[0].args, strict=False)}
    filled = {name: _filled(value, {name: given.get(name)}) for name, value in arguments.items()}
    known = {name: value for name, value in filled.items() if value is not None}
    return _with_call(source, calls[0], known) if len(known) == len(filled) else ""


def _filled(value: str, given: Mapping[str, str | None]) -> str | None:
    """An expression with what is given in the place of names; None where one of them is not."""
    tree = ast.parse(value, mode="eval")
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    if any(given.get(name.id) in (None, "None") for name in names):
        return None
    for name in sorted(names, key=lambda one: -one.col_offset):
        now = given[name.id] or ""
        if not isinstance(ast.parse(now, mode="eval").body, _WHOLE):
            now = f"({now})"
        value = value[: name.col_offset] + now + value[name.end_col_offset :]
    return value


def _find(tree: ast.Module, edit: Edit) -> ast.Call | None:
    """The call of an edit: of those around its line the one of that name, or of a base class's constructor."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= edit.line <= (node.end_lineno or node.lineno)
    ]
    named = [call for call in calls if last_name(call.func) == edit.call]
    found = named or [call for call in calls if last_name(call.func) == "__init__"]
    return found[0] if len(found) == 1 else None


def written_in(scope: ast.AST, but: tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """All nodes below one, without those of some kinds and what is in them."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, but):
            yield child
            yield from written_in(child, but)


def last_name(function: ast.expr) -> str:
    """The name of what is called without what it is part of; "" where it has none."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def first_name(function: ast.expr) -> str:
    """The name that what is called is part of, ``torch`` of ``torch.nn.Linear``; "" where it is part of none."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def more_rarely(condition: str, times: int) -> str:
    """A condition that holds in so many times fewer rounds, in its own words; "" where that is not clear.

    Args:
        condition: Python that compares remainders, ``(step + 1) % every == 0``.
        times: how many times as large what the remainders are of becomes.
    """
    try:
        tree = ast.parse(condition, mode="eval")
    except (SyntaxError, ValueError):  # of another version of Python
        return ""
    remainders = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)]
    if not remainders or len(remainders) != sum(map(_chooses_one, ast.walk(tree))):
        return ""
    for node in remainders:
        every = node.right
        if isinstance(every, ast.Constant) and isinstance(every.value, int):
            node.right = ast.Constant(times * every.value)
        else:
            node.right = ast.BinOp(ast.Constant(times), ast.Mult(), every)
    return ast.unparse(tree)


def _chooses_one(node: ast.AST) -> bool:
    """Whether a remainder has to have one value: ``i % n == 0``, ``not i % n``, ``not i % n != 0``."""
    match node:
        case ast.Compare(left=ast.BinOp(op=ast.Mod()), ops=[ast.Eq()]):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=ast.BinOp(op=ast.Mod())):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=ast.BinOp(op=ast.Mod()), ops=[ast.NotEq()])):
            return True
    return False


def _with_call(source: str, call: ast.Call, arguments: Mapping[str, str]) -> str:
    """The source with other arguments in a call: in its own words where these can be kept; "" where it cannot be."""
    wanted = _changed(call, arguments)
    if wanted is None:
        return ""
    begin, end = _span(source, call)
    whole = source[:begin] + ast.unparse(wanted) + source[end:]
    meant = _meaning(whole)
    if meant is None:
        return ""
    kept = _replaced(source, _new_arguments(source, call, arguments))
    return kept if _meaning(kept) == meant else whole


def _meaning(source: str) -> str | None:
    try:
        return ast.dump(parse(source))
    except (SyntaxError, ValueError):
        return None


def _changed(call: ast.Call, arguments: Mapping[str, str]) -> ast.Call | None:
    """The call with its new arguments; None where that cannot be determined."""
    values = {name: ast.parse(value, mode="eval").body for name, value in arguments.items()}
    if "" in values:
        return ast.Call(call.func, [values[""]], []) if len(call.args) == 1 and not call.keywords else None
    refused = _refused(arguments)
    unpacked = [keyword for keyword in call.keywords if keyword.arg is None]
    impossible = {name for argument in arguments.items() for name in _IMPOSSIBLE.get(argument, ())}
    if len(call.args) > _FEW_POSITIONS or (refused and unpacked):
        return None
    if any(keyword.arg in impossible for keyword in call.keywords):
        return None
    by_position = dict(zip(_positions(call), call.args, strict=False))
    placed = [values.pop(name, value) for name, value in by_position.items()] + call.args[len(by_position) :]
    kept = [keyword for keyword in call.keywords if keyword.arg not in refused]
    given = {keyword.arg for keyword in kept}
    keywords = [ast.keyword(one.arg, values.get(one.arg or "", one.value)) for one in kept]
    missing = {name: value for name, value in values.items() if name not in given}
    if unpacked and missing:
        # What is unpacked may hold the same names; those that come last count.
        last = max(number for number, keyword in enumerate(keywords) if keyword.arg is None)
        names: list[ast.expr | None] = [None, *map(ast.Constant, missing)]
        keywords[last] = ast.keyword(None, ast.Dict(names, [keywords[last].value, *missing.values()]))
    else:
        keywords += [ast.keyword(name, value) for name, value in missing.items()]
    return ast.Call(call.func, placed, keywords)


def _positions(call: ast.Call) -> tuple[str, ...]:
    """The names of a call's positional arguments, as far as they are known."""
    starred = any(isinstance(one, ast.Starred) for one in call.args)
    return () if starred else _POSITIONS.get(last_name(call.func), ())


def _refused(arguments: Mapping[str, str]) -> set[str]:
    """What a call must not have beside its new arguments."""
    return {name for argument in arguments.items() for name in _REFUSED.get(argument, ())} - arguments.keys()


def _new_arguments(source: str, call: ast.Call, arguments: Mapping[str, str]) -> list[tuple[int, int, str]]:
    """Pieces of the source to replace, begin, end and the new text: right unless something stands in parentheses."""
    if "" in arguments:
        return [(*_span(source, call.args[0]), arguments[""])]
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    changes = [(*_span(source, given[name]), value) for name, value in arguments.items() if name in given]
    changes += _without_refused(source, call, arguments)
    missing = {name: value for name, value in arguments.items() if name not in given}
    there = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not missing or not there:
        return changes
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    if unpacked:
        begin, end = _span(source, unpacked[-1])
        added = "".join(f", {name!r}: {value}" for name, value in missing.items()).replace("'", '"')
        return [*changes, (begin, end, f"{{**{source[begin:end]}{added}}}")]
    end = max(_span(source, one)[1] for one in there)
    return [*changes, (end, end, "".join(f", {name}={value}" for name, value in missing.items()))]


def _without_refused(source: str, call: ast.Call, arguments: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    refused = _refused(arguments)
    there = sorted([*call.args, *(keyword.value for keyword in call.keywords)], key=lambda one: _span(source, one))
    for keyword in call.keywords:
        before = there.index(keyword.value) - 1
        if keyword.arg in refused and before >= 0:
            yield _span(source, there[before])[1], _span(source, keyword.value)[1], ""


def _replaced(source: str, changes: Sequence[tuple[int, int, str]]) -> str:
    # From the end, so that what stands before keeps its place.
    for begin, end, text in sorted(changes, reverse=True):
        source = source[:begin] + text + source[end:]
    return source


def _with_new_call(source: str, tree: ast.Module, edit: Edit) -> str:
    """A call after the imports at the top of the file, where the module is imported under its own name."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names if not alias.asname}
    if edit.call.partition(".")[0] not in names:
        return source
    line = max(node.end_lineno or node.lineno for node in imports)
    end = sum(map(len, _lines(source)[:line]))
    return f"{source[:end]}\n{edit.call}({edit.arguments['']})\n{source[end:]}"


def _span(source: str, node: ast.expr) -> tuple[int, int]:
    """Where an expression stands in the source, in characters; the tree counts bytes of UTF-8."""
    lines = _lines(source)

    def place(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)


def _lines(source: str) -> list[str]:
    """The lines as Python's parser counts them: a form feed, among others, ends none."""
    return [f"{line}\n" for line in source.split("\n")]
