"""Changes of advice in the job's own code: the call that it has now, with the new arguments; its own command.

Advice is written for any job: ``DataLoader(..., num_workers=2)`` is a call with what it has now in the place of the
three points, and ``python train.py`` is how the job is started. Where the job's own are known, they are put there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from perfdoctor.diagnosis import OwnCall, OwnCode
from perfdoctor.results.edits import last_name, parse, with_arguments

_COMMAND = re.compile(r"\bpython train\.py\b")
_SCRIPT = re.compile(r"(?<![\w./-])train\.py\b")
_OWN_SCRIPT = re.compile(r"(?<=\s)\S+\.py(?=\s|$)")


def in_own_code(change: str, own: OwnCode) -> str:
    """Code of advice as it looks in the job; lines for which nothing of that is known stay as they are."""
    lines = [_in_call(_by_trainer(line, own.loader_arguments), own.calls) for line in change.split("\n")]
    return "\n".join(_with_command(line, own.command) for line in lines)


def _by_trainer(line: str, names: Mapping[str, str]) -> str:
    """A line about a loader as whoever makes the job's loaders takes it; as it is where that has no such argument."""
    made = _call_of(line)
    if made is None or last_name(made.func) != "DataLoader":
        return line
    wanted = _arguments(made)
    if not wanted or not names.keys() >= wanted.keys():
        return line
    given = ", ".join(f"{names[name]}={_renamed(value, names)}" for name, value in wanted.items())
    return f"TrainingArguments(..., {given}){line.encode()[made.end_col_offset :].decode()}"


def _renamed(value: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[a-z_]+\b", lambda name: names.get(name[0], name[0]), value)


def _call_of(line: str) -> ast.Call | None:
    """The call that a line of advice is, or whose value it names; None for anything else."""
    try:
        (statement,) = parse(line).body
    except (SyntaxError, ValueError, RecursionError):  # a command, a comment, or part of a longer statement
        return None
    made = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    return made if isinstance(made, ast.Call) and made.args else None


def _in_call(line: str, calls: tuple[OwnCall, ...]) -> str:
    made = _call_of(line)
    if made is None:
        return line
    own = next((call for call in calls if last_name(made.func) in call.names), None)
    arguments = _arguments(made)
    text = with_arguments(own.text, own.names, arguments) if own is not None and arguments else ""
    if own is None or text in ("", own.text):  # a call that says so already is not the one to change
        return line
    comment = line.encode()[made.end_col_offset :].decode().strip()
    return "\n".join(filter(None, (f"# {own.file.rpartition('/')[2]}:{own.line}", comment, text)))


def _arguments(template: ast.Call) -> dict[str, str]:
    """What advice says of a call; {} where it says all of it."""
    first = template.args[0]
    if isinstance(first, ast.Constant) and first.value is ...:
        return {keyword.arg: ast.unparse(keyword.value) for keyword in template.keywords if keyword.arg}
    return {"": ast.unparse(first)} if len(template.args) == 1 and not template.keywords else {}


def _with_command(line: str, command: str) -> str:
    if not command:
        return line
    if _COMMAND.search(line):
        return _COMMAND.sub(lambda _: command, line)
    scripts = _OWN_SCRIPT.findall(command)
    return _SCRIPT.sub(lambda _: scripts[0], line) if len(scripts) == 1 else line
