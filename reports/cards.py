"""Findings as reports show them: what was measured, what to change, what would refute it.

Lines of the job's code stand with their whole path where a file is first named, and by its name after that.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Advice, Diagnosis, Evidence, Finding, Fix, LookAlike
from perfdoctor.messages import Text
from perfdoctor.reports.text import clean, clean_lines, is_prose, lower_first, percent, quantity, sentence, times
from perfdoctor.reports.wording import cause_title, label, worded, worded_fixes

# What is likely is told beside what a change brings at most where it frees less than this part of that.
_MUCH_OF_MOST = 0.8
_LOCATION = re.compile(r"(?<![\w./~])(/(?:[^\s/:'\"]+/)+([^\s/:'\"]+)):(?=\d)")


class ShortPaths:
    """Shortens paths in the texts of one report, which must come in the order in which they are read.

    Args:
        texts: all of them: a name that two of their files share stays behind its path.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        paths: dict[str, set[str]] = defaultdict(set)
        for text in texts:
            for path, name in _LOCATION.findall(text):
                paths[name].add(path)
        self._shared = {name for name, found in paths.items() if len(found) > 1}
        self._named: set[str] = set()

    def shorten(self, text: str) -> str:
        """The text, with files that were named before by their name."""
        return _LOCATION.sub(self._shortened, text)

    def _shortened(self, match: re.Match[str]) -> str:
        path, name = match[1], match[2]
        if path in self._named and name not in self._shared:
            return f"{name}:"
        self._named.add(path)
        return match[0]


def by_name(text: str) -> str:
    """The text with each line of code behind the name of its file."""
    return _LOCATION.sub(lambda place: f"{place[2]}:", text)


@dataclass(frozen=True, slots=True)
class ShownFix:
    """A fix: what to change, why it helps here, and the change: in a sentence or as code, the other one is "".

    Attributes:
        gain: what it brings, ``1.3 to 1.5 times as fast`` for instance; "" where it is not known.
        after: what is left of the time with it, as a fraction: expected, at least and at most; None likewise.
    """

    title: str
    why: str
    prose: str
    code: str
    gain: str = ""
    after: tuple[float, float, float] | None = None

    @property
    def headline(self) -> str:
        """The title with what it brings."""
        return label("aside", text=self.title, more=self.gain) if self.gain else self.title


@dataclass(frozen=True, slots=True)
class RuledOut:
    """Another cause that it could have been.

    Attributes:
        share: what goes there; "" where that was not examined.
        evidence: rows of what was measured and the value.
        ruled_out: too little goes there to be reported.
    """

    title: str
    share: str
    evidence: tuple[tuple[str, str], ...]
    ruled_out: bool


@dataclass(frozen=True, slots=True)
class Card:
    """One finding.

    Attributes:
        evidence: rows of what was measured, the value, and the probe that saw it.
        gain: what fixing it brings, in words; "" for nothing.
        look_alikes: what else it could have been.
        ranks: e.g. ``ranks 0 and 3``; "" for a job of one trainer.
        summary: one sentence; "" where the verdict says it already.
    """

    title: str
    cause: str
    severity: str
    healthy: bool
    share: str
    gain: str
    ranks: str
    summary: str
    evidence: tuple[tuple[str, str, str], ...]
    changes: tuple[ShownFix, ...]
    refuted_by: str
    look_alikes: tuple[RuledOut, ...] = ()


def texts(diagnosis: Diagnosis) -> Iterator[str]:
    """The texts of a diagnosis in which lines of code may be named."""
    yield worded(diagnosis.verdict.summary)
    for finding in diagnosis.findings:
        yield worded(finding.summary)
        yield from (worded(item.value) for item in finding.evidence if not isinstance(item.value, (int, float)))
        for fix in worded_fixes(finding):
            yield from (fix.title, fix.why)


def card(finding: Finding, paths: ShortPaths, *, said: Text, unequal: bool) -> Card:
    """A finding as it is shown.

    Args:
        finding: what was found.
        paths: of the whole report.
        said: the verdict's summary, which is not repeated.
        unequal: it is of work that is no bottleneck in itself, but that ranks have more of than others.
    """
    cause = CAUSES[finding.cause]
    healthy = cause.healthy and not unequal
    return Card(
        title=sentence(finding_title(finding)),
        cause=cause.id,
        severity="unequal ranks" if unequal else "no bottleneck" if healthy else clean(finding.severity),
        healthy=healthy,
        share=percent(finding.share),
        gain="" if cause.healthy else gain_of(finding),
        ranks=_ranks(finding.ranks),
        summary="" if finding.summary == said else paths.shorten(clean(finding.summary)),
        evidence=_evidence(finding.evidence, paths),
        changes=tuple(_change(fix, paths) for fix in worded_fixes(finding)),
        refuted_by=clean(finding.refuted_by),
        look_alikes=tuple(map(_alike, finding.look_alikes)),
    )


def finding_title(finding: Finding) -> str:
    """What was found, as a short noun phrase: its own title, or else that of its cause."""
    return lower_first(worded(finding.title)) if finding.title else cause_title(finding.cause)


def gain_of(finding: Finding) -> str:
    """What fixing it brings, in words: that of the first change of known gain, else what its share allows."""
    if finding.predicted_speedup <= 1:
        return ""
    known = next((fix for fix in finding.fixes if fix.predicted_speedup), None)
    return _gain(known) if known else gain_between(1.0, finding.predicted_speedup)


def gain_between(least: float, most: float, likely: float | None = None) -> str:
    """A gain with its range, ``1.3 to 1.5 times as fast``; up to something where nothing is sure.

    What rounds to nothing is not told. Where nothing is sure, so is what is likely if it is clearly less than the most.
    """
    low, high, nothing = times(least), times(most), times(1.0)
    if high == nothing:
        return ""
    middle = times(likely) if likely is not None and 1 - 1 / likely < _MUCH_OF_MOST * (1 - 1 / most) else nothing
    return label(
        "times_as_fast",
        least="" if low == nothing else low,
        likely="" if middle == nothing else middle,
        most=high,
    )


def _alike(one: LookAlike) -> RuledOut:
    return RuledOut(
        title=sentence(cause_title(one.cause)),
        share="" if one.share is None else percent(one.share),
        evidence=tuple((clean(worded(item.name)), quantity(item.value, item.unit)) for item in one.evidence),
        ruled_out=one.ruled_out,
    )


def _evidence(items: Iterable[Evidence], paths: ShortPaths) -> tuple[tuple[str, str, str], ...]:
    """Rows of a table; what has the same name as the row above it is not named again."""
    rows: list[tuple[str, str, str]] = []
    above = None
    for item in items:
        name = sentence(clean(worded(item.name)))
        rows.append(("" if name == above else name, paths.shorten(quantity(item.value, item.unit)), clean(item.probe)))
        above = name
    return tuple(rows)


def _change(fix: Fix, paths: ShortPaths) -> ShownFix:
    change = clean_lines(fix.change)
    prose, code = (change, "") if is_prose(change) else ("", change)
    return ShownFix(
        paths.shorten(clean(fix.title)), paths.shorten(clean(fix.why)), prose, code, _gain(fix), _after(fix)
    )


def _gain(fix: Fix | Advice) -> str:
    """What a fix brings, in words; "" where it is not known."""
    expected = fix.predicted_speedup
    return gain_between(*_range(fix, expected), expected) if expected else ""


def _after(fix: Fix) -> tuple[float, float, float] | None:
    """What is left of the time with a fix: expected, at least and at most."""
    if not fix.predicted_speedup:
        return None
    least, most = _range(fix, fix.predicted_speedup)
    return 1 / fix.predicted_speedup, 1 / most, 1 / least


def _range(fix: Fix | Advice, expected: float) -> tuple[float, float]:
    """What a fix brings at least and at most; nothing at least where only the most is known."""
    return fix.speedup_range or (1.0, expected)


def _ranks(ranks: tuple[int, ...]) -> str:
    return label("ranks", ranks=ranks) if ranks else ""
