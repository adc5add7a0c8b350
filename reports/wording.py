"""From messages to text, in the language of the reports (``perfdoctor.reports.language``)."""

import re
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from perfdoctor.diagnosis import Advice, Diagnosis, Evidence, Finding, Fix, NotExamined, OwnCode
from perfdoctor.messages import Message, Text, say
from perfdoctor.reports.changes_in_place import in_own_code
from perfdoctor.reports.language import ENGLISH, LANGUAGES, catalogue
from perfdoctor.reports.phrasebook import commentary, phrasebook
from perfdoctor.results.stuck import Stuck

_SOURCE = LANGUAGES[ENGLISH].package
_COMMENT = re.compile(r"((?:^|\s)# ?)(.*)$", re.MULTILINE)


def worded(text: Text) -> str:
    """The text of a message; of plain text what the language's phrasebook says, and else the text itself."""
    if isinstance(text, Message):
        return str(_words(text, catalogue().package))
    return text if catalogue().package == _SOURCE else phrasebook(catalogue().package).look_up(text)


def label(name: str, /, **values: Any) -> str:
    """A heading, the name of a row or another word of the reports' own: a function in ``labels`` of the language."""
    return worded(Message(f"labels.{name}", tuple(values.items())))


def cause_title(cause: str) -> str:
    """What a cause is, as a short noun phrase."""
    return worded(say("causes.title", cause=cause))


def cause_goes(cause: str) -> str:
    """What happens in the time that a cause takes, after "62 % of the time"; "" for what is no bottleneck."""
    return worded(say("causes.goes", cause=cause))


def page_words() -> ModuleType:
    """The page's own words: ``WORDS``, ``METHOD`` and ``METHOD_ALWAYS``."""
    return import_module(f"perfdoctor.reports.{catalogue().package}.page")


def live_words() -> ModuleType:
    """The live view's own words: tables in capitals."""
    return import_module(f"perfdoctor.reports.{catalogue().package}.live")


def explained_words() -> ModuleType:
    """Those of `perfdoctor explain`."""
    return import_module(f"perfdoctor.reports.{catalogue().package}.explained")


def explained_cause(cause: str) -> Any:
    """What is said of a cause at length, as ``perfdoctor.reports.shared_words.Explanation``."""
    return import_module(f"perfdoctor.reports.{catalogue().package}.causes").EXPLAINED[cause]


def job_words() -> ModuleType:
    """The own words of lists of jobs and of checks, likewise."""
    return import_module(f"perfdoctor.reports.{catalogue().package}.jobs")


def worded_fix(fix: Fix | Advice) -> Fix:
    """The words of a piece of advice; a fix that has its words already passes."""
    if not isinstance(fix, Advice):
        return fix
    words: Fix = _words(fix.message, catalogue().package)
    if not words.change:  # code is written once, and its comments are looked up
        words = replace(words, change=_commented(_words(fix.message, _SOURCE).change))
    words = replace(words, change=_with_versions(in_own_code(words.change, fix.own), fix.own))
    if fix.price is not None:
        words = replace(words, why=label("with_price", why=words.why, price=worded(fix.price)))
    gain, between = fix.predicted_speedup, fix.speedup_range
    return replace(words, predicted_speedup=gain, speedup_range=between, changes_step=fix.changes_step)


def _with_versions(change: str, own: OwnCode) -> str:
    """A change with what it calls that the job's own PyTorch does not have yet."""
    missing = (part for part in own.missing if part.code.search(change))
    needs = (
        label("needs_torch", name=part.name, since="{}.{}".format(*part.torch), torch=own.torch) for part in missing
    )
    return "\n".join((change, *needs))


def _commented(code: str) -> str:
    """Code with its comments in the language."""
    comments = commentary(catalogue().package)
    return _COMMENT.sub(lambda comment: comment[1] + comments.look_up(comment[2]), code)


def worded_fixes(finding: Finding) -> tuple[Fix, ...]:
    """The fixes of a finding, with their words."""
    return tuple(map(worded_fix, finding.fixes))


def worded_evidence(item: Evidence) -> Evidence:
    """Evidence with its name, and its value if it is no number, as text."""
    value = item.value if isinstance(item.value, (int, float)) else worded(item.value)
    return replace(item, name=worded(item.name), value=value)


def worded_finding(finding: Finding) -> Finding:
    """The finding with nothing but text."""
    return replace(
        finding,
        summary=worded(finding.summary),
        evidence=tuple(map(worded_evidence, finding.evidence)),
        fixes=worded_fixes(finding),
        refuted_by=worded(finding.refuted_by),
        title=worded(finding.title),
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
        method=tuple(map(worded, diagnosis.method)),
        stuck=None if diagnosis.stuck is None else _worded_stuck(diagnosis.stuck),
    )


def _worded_stuck(stuck: Stuck) -> Stuck:
    return replace(
        stuck,
        summary=worded(stuck.summary),
        next_move=worded(stuck.next_move),
        refuted_by=worded(stuck.refuted_by),
    )


def _worded_gap(item: NotExamined) -> NotExamined:
    return replace(item, reason=worded(item.reason), enable=worded(item.enable))


def _words(message: Message, package: str) -> Any:
    """What the function of a message returns: a text, or a fix."""
    family, _, name = message.id.partition(".")
    function = getattr(import_module(f"perfdoctor.reports.{package}.{family}"), name)
    return function(**{name: _plain(value) for name, value in message.values})


def _plain(value: Any) -> Any:
    """A value with the messages in it as text."""
    if isinstance(value, Message):
        return worded(value)
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
