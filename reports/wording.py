"""From messages to text, in the language of the reports."""

from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from perfdoctor.diagnosis import Advice, Diagnosis, Evidence, Finding, Fix, Message, NotExamined, Text

LANGUAGE = "english"


def worded(text: Text) -> str:
    """The text of a message; what is text already passes."""
    return str(_words(text)) if isinstance(text, Message) else text


def page_words() -> ModuleType:
    """The page's own words: ``GOES``, ``WORDS``, ``METHOD`` and ``METHOD_ALWAYS``."""
    return import_module(f"perfdoctor.reports.{LANGUAGE}.page")


def worded_fix(fix: Fix | Advice) -> Fix:
    """The words of a piece of advice; a fix that has its words already passes."""
    if not isinstance(fix, Advice):
        return fix
    words: Fix = _words(fix.message)
    return replace(words, predicted_speedup=fix.predicted_speedup, speedup_range=fix.speedup_range)


def worded_fixes(finding: Finding) -> tuple[Fix, ...]:
    """The fixes of a finding, with their words."""
    return tuple(map(worded_fix, finding.fixes))


def worded_evidence(item: Evidence) -> Evidence:
    """Evidence with its name, and its value if it is no number, as text."""
    return replace(item, name=worded(item.name), value=_plain(item.value))


def worded_finding(finding: Finding) -> Finding:
    """The finding with nothing but text."""
    return replace(
        finding,
        summary=worded(finding.summary),
        evidence=tuple(map(worded_evidence, finding.evidence)),
        fixes=worded_fixes(finding),
        refuted_by=worded(finding.refuted_by),
        look_alikes=tuple(
            replace(one, evidence=tuple(map(worded_evidence, one.evidence))) for one in finding.look_alikes
        ),
    )


def worded_diagnosis(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with nothing but text, as outputs write it."""
    return replace(
        diagnosis,
        verdict=replace(diagnosis.verdict, summary=worded(diagnosis.verdict.summary)),
        findings=tuple(map(worded_finding, diagnosis.findings)),
        not_examined=tuple(map(_worded_gap, diagnosis.not_examined)),
        not_drawn=tuple(map(worded, diagnosis.not_drawn)),
    )


def _worded_gap(item: NotExamined) -> NotExamined:
    return replace(item, reason=worded(item.reason), enable=worded(item.enable))


def _words(message: Message) -> Any:
    """What the function of a message returns: a text, or a fix."""
    family, _, name = message.id.partition(".")
    function = getattr(import_module(f"perfdoctor.reports.{LANGUAGE}.{family}"), name)
    return function(**{name: _plain(value) for name, value in message.values})


def _plain(value: Any) -> Any:
    """A value with the messages in it as text."""
    if isinstance(value, Message):
        return worded(value)
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
