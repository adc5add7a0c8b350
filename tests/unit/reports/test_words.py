"""Every message that the analysis can emit has its words in every language, and no words are left over."""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from string import Formatter
from types import FunctionType
from typing import Any, NamedTuple

import pytest

import perfdoctor.reports
from perfdoctor.diagnosis import Advice, Fix, advise
from perfdoctor.messages import say
from perfdoctor.reports import language
from perfdoctor.reports.wording import worded, worded_fix
from tests.unit.project.sources import modules

REPORTS = Path(perfdoctor.reports.__path__[0])
LANGUAGES = [folder.name for folder in REPORTS.iterdir() if (folder / "finding.py").exists()]
# What messages share, and no message.
NOT_MESSAGES = ("__init__", "phrases")


class Said(NamedTuple):
    """One place that emits a message."""

    where: str
    id: str
    values: frozenset[str]
    returns: type


def said() -> list[Said]:
    """All messages, read from the source: ids are literals."""
    found = []
    for module in modules().values():
        for call in ast.walk(module.tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            if call.func.id not in ("say", "advise", "label") or module.path.as_posix() == "perfdoctor/diagnosis.py":
                continue
            where = f"{module.path}:{call.lineno}"
            what = call.args[0]
            branches = [what.body, what.orelse] if isinstance(what, ast.IfExp) else [what]
            values = frozenset(value.arg for value in call.keywords if value.arg is not None)
            assert all(value.arg for value in call.keywords), f"{where}: values by name only"
            for branch in branches:
                assert isinstance(branch, ast.Constant), f"{where}: the id of a message is a literal"
                id = f"labels.{branch.value}" if call.func.id == "label" else branch.value
                found.append(Said(where, id, values, Fix if call.func.id == "advise" else str))
    return found


def words(package: str) -> dict[str, FunctionType]:
    """The functions of a language by the ids of their messages."""
    found = {}
    for file in (REPORTS / package).glob("*.py"):
        if file.stem not in NOT_MESSAGES:
            module = import_module(f"perfdoctor.reports.{package}.{file.stem}")
            functions = inspect.getmembers(module, inspect.isfunction)
            own = [(name, one) for name, one in functions if one.__module__ == module.__name__ and name[0] != "_"]
            found.update({f"{file.stem}.{name}": one for name, one in own})
    return found


def test_messages_are_found() -> None:
    assert set(LANGUAGES) == {catalogue.package for catalogue in language.LANGUAGES.values()}
    assert len(said()) > 50


@pytest.mark.parametrize("package", LANGUAGES)
def test_every_message_has_its_words(package: str) -> None:
    known = words(package)
    assert [one for one in said() if one.id not in known] == []


@pytest.mark.parametrize("package", LANGUAGES)
def test_words_take_the_values_that_are_said(package: str) -> None:
    known = words(package)
    wrong = [one for one in said() if set(inspect.signature(known[one.id]).parameters) != one.values]
    assert wrong == []
    assert [one for one in said() if inspect.get_annotations(known[one.id])["return"] is not one.returns] == []


@pytest.mark.parametrize("package", LANGUAGES)
def test_modules_and_tables_are_the_same_in_every_language(package: str) -> None:
    """Tables of words are named in capitals; what is open in one of them is so in each language."""
    for file in (REPORTS / "english").glob("*.py"):
        if file.stem not in NOT_MESSAGES:
            english = import_module(f"perfdoctor.reports.english.{file.stem}")
            other = import_module(f"perfdoctor.reports.{package}.{file.stem}")
            for name in tables(f"perfdoctor.reports.english.{file.stem}"):
                assert outline_of(getattr(other, name)) == outline_of(getattr(english, name)), f"{file.stem}.{name}"


def tables(name: str) -> list[str]:
    """The names of a module's own that are in capitals."""
    targets = [one for node in modules()[name].tree.body if isinstance(node, ast.Assign) for one in node.targets]
    return [one.id for one in targets if isinstance(one, ast.Name) and one.id.isupper() and one.id[0] != "_"]


def outline_of(words: Any) -> Any:
    """Keys, lengths and names of what is open, without the words."""
    if isinstance(words, str):
        return sorted(str(field) for _, field, _, _ in Formatter().parse(words) if field is not None)
    if isinstance(words, Mapping):
        return {key: outline_of(value) for key, value in words.items()}
    return [outline_of(value) for value in words]


@pytest.mark.parametrize("package", LANGUAGES)
def test_no_words_are_left_over(package: str) -> None:
    assert words(package).keys() - {one.id for one in said()} == set()


def test_messages_in_messages_become_text_too() -> None:
    why = say("io.device_full", busy=0.9)
    advice = replace(advise("io.fewer_bytes", share=0.5, no_more_workers=why), predicted_speedup=1.5)
    fix = worded_fix(advice)
    assert isinstance(advice, Advice)
    assert fix.predicted_speedup == 1.5
    assert fix.why.endswith("50% of the time. " + worded(why))


def test_texts_of_others_pass_as_they_are() -> None:
    assert worded("mine") == "mine"
    assert worded_fix(Fix("a", "b", "c")) == Fix("a", "b", "c")
