"""For the tests about the source itself: its modules, and what they import."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from tests.files import ROOT

FOLDERS = {"perfdoctor": "perfdoctor", "perfdoctor.probes": "probes", "perfdoctor.reports": "reports"}


@dataclass(frozen=True)
class Module:
    """One file.

    Attributes:
        name: as it is imported.
        path: relative to the repository's root.
    """

    name: str
    path: Path
    tree: ast.Module
    lines: int


@dataclass(frozen=True)
class Import:
    """One imported name.

    Attributes:
        name: dotted; for ``from a import b`` both ``a`` and ``a.b`` are yielded.
        at_start: executed when the module is imported, not only for type checkers or inside a function.
    """

    name: str
    line: int
    at_start: bool


@lru_cache(maxsize=1)
def modules() -> dict[str, Module]:
    """All modules that are shipped, by name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join((package, *(part for part in parts if part != "__init__")))
            text = path.read_text(encoding="utf-8")
            found[name] = Module(name, path.relative_to(ROOT), ast.parse(text), len(text.splitlines()))
    return found


def imports(module: Module) -> Iterator[Import]:
    """Everything that a module imports, wherever it stands."""
    yield from _imports(module.tree, at_start=True)


def _imports(node: ast.AST, *, at_start: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, at_start) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            yield Import(base, child.lineno, at_start)
            yield from (Import(f"{base}.{alias.name}", child.lineno, at_start) for alias in child.names)
        else:
            later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _only_for_types(child)
            yield from _imports(child, at_start=at_start and not later)


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


@cache
def named(name: str) -> frozenset[str]:
    """Our own modules that a module names in its imports."""
    return frozenset({one.name for one in imports(modules()[name]) if one.at_start} & modules().keys())


@cache
def needed(name: str) -> frozenset[str]:
    """Our own modules that importing a module imports: those named, and the packages that they and it lie in."""
    paths = [one.split(".") for one in (name, *named(name))]
    found = {".".join(path[:count]) for path in paths for count in range(1, len(path) + 1)}
    return frozenset(found & modules().keys())


def reached(name: str, step: Callable[[str], frozenset[str]]) -> set[str]:
    """Whatever one step after another leads to from a module."""
    found: set[str] = set()
    waiting = set(step(name))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting |= step(one)
    return found
