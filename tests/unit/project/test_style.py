"""Limits that keep the source readable, held by a machine because they creep."""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.files import ROOT
from tests.unit.project.sources import Module, modules

MAX_FILE = 400
# One table, however many rows it has.
TABLES = ("perfdoctor/knowledge/thresholds.py",)
MAX_FUNCTION = 60
MAX_ARGUMENTS = 6
# Handlers that may catch anything, with the reason.
CATCH_ALL = {
    # A user's rule may raise anything, and costs only itself.
    ("perfdoctor/rules/users_rules.py", "find_of_users"),
    # Whatever is wrong with perfdoctor must not end the user's training; the reason is reported as a warning.
    ("perfdoctor/api.py", "_start"),
    # What goes wrong in the thread that makes live views is raised in the one that draws them.
    ("perfdoctor/live/analyst.py", "run"),
    # A library of a GPU's driver may raise anything; it is reported as what could not be seen.
    ("probes/gpu.py", "_run"),
    # Nor between two steps; there the report has the reason.
    ("probes/inside/session.py", "step_ended"),
    # Nor whatever is wrong with a profiler.
    ("probes/inside/profiler_run.py", "_harmless"),
    # Nor whatever is wrong with a trace that was asked for from outside.
    ("probes/inside/brief_trace.py", "run"),
    ("probes/inside/main_thread_call.py", "run"),
}


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_are_short() -> None:
    long = [module for module in modules().values() if module.lines > MAX_FILE]
    assert [f"{one.path}: {one.lines} lines" for one in long if one.path.as_posix() not in TABLES] == []


def test_functions_are_short() -> None:
    long = [
        f"{module.path}:{function.lineno} {function.name}"
        for module in modules().values()
        for function in functions(module)
        if (function.end_lineno or 0) - function.lineno + 1 > MAX_FUNCTION
    ]
    assert long == []


def test_functions_take_few_positional_arguments() -> None:
    wide = [
        f"{module.path}:{function.lineno} {function.name}"
        for module in modules().values()
        for function in functions(module)
        if len([one for one in function.args.args if one.arg not in ("self", "cls")]) > MAX_ARGUMENTS
    ]
    assert wide == []


@pytest.mark.parametrize("name", modules())
def test_module_says_what_it_is_for(name: str) -> None:
    assert ast.get_docstring(modules()[name].tree), f"{modules()[name].path} has no docstring"


def test_nothing_is_caught_blindly() -> None:
    caught = {
        (module.path.as_posix(), function.name)
        for module in modules().values()
        for function in functions(module)
        for handler in ast.walk(function)
        if isinstance(handler, ast.ExceptHandler) and _is_blind(handler)
    }
    assert caught == CATCH_ALL


def _is_blind(handler: ast.ExceptHandler) -> bool:
    """It catches everything and does not hand it on."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind) for kind in kinds if kind is not None}
    last = handler.body[-1]
    hands_on = isinstance(last, ast.Raise) and last.exc is None
    return (handler.type is None or bool(names & {"Exception", "BaseException"})) and not hands_on


def test_no_file_names_the_place_where_it_was_written() -> None:
    """Neither this checkout's path, nor its environment's."""
    places = {str(ROOT), sys.prefix, sys.base_prefix}
    private = {place for place in places if place.count("/") > 1 and not place.startswith(("/usr", "/opt"))}
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    telling = []
    for name in names:
        path = ROOT / name
        if path.is_file() and path.suffix not in (".png", ".perfdoctor"):
            text = path.read_text(encoding="utf-8", errors="replace")
            telling += [f"{name} names {place}" for place in private if place in text]
    assert telling == []
