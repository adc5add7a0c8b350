"""Source around the lines that cost most: each line with its number and its share, those that cost something marked.

Lines and findings point to each other: from a finding to the lines where its time goes, and from each of these back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent

from perfdoctor.reports.bands import Entry
from perfdoctor.reports.palette import Palette
from perfdoctor.reports.text import brief, clean_lines, percent, shown_cause
from perfdoctor.reports.wording import page_words
from perfdoctor.results.activity import Excerpt, ExcerptLine, SourceView

_LEAST = 0.001  # a smaller share is not written
_HOT = 0.01  # and from here on a line is marked
_POINTED = 4  # lines to which a finding points, those that cost most


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line.

    Attributes:
        indent: by how many columns it is indented; the text has no blanks before it.
        share: in words; "" where it takes nothing.
        width: of its bar in percent: the line that costs most on the page has the whole.
        look: class of the colour of its cause.
        cause: the cause's title; "" for none.
        hot: it is marked.
        anchor: by which the line is found on the page.
        finding: number of the finding that is about its cause; 0 where there is none.
    """

    number: int
    indent: int
    text: str
    share: str
    width: float
    look: str
    cause: str
    hot: bool
    anchor: str
    finding: int


@dataclass(frozen=True, slots=True)
class ShownExcerpt:
    """An excerpt.

    Attributes:
        file: as the job named it, by which lines are distinguished; it is not shown.
        name: of the file.
        path: all of it, as it is shown.
        share: of all its lines.
        changed: the file was written after the job had been started.
        legend: what the colours of its bars stand for.
    """

    file: str
    name: str
    path: str
    function: str
    share: str
    changed: bool
    lines: tuple[ShownLine, ...]
    legend: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Pointer:
    """A line to which a finding points.

    Attributes:
        place: ``train.py:41``.
    """

    anchor: str
    place: str
    share: str


def source_view(source: SourceView, palette: Palette, findings: Mapping[str, int]) -> tuple[ShownExcerpt, ...]:
    """All excerpts, those that cost most first.

    Args:
        source: what is held of it.
        palette: colours of causes.
        findings: their numbers on the page, by cause.
    """
    most = max((line.share for one in source.excerpts for line in one.lines), default=0.0) or 1.0
    return tuple(
        _excerpt(one, f"source-{number}", most, palette, findings)
        for number, one in enumerate(source.excerpts, start=1)
    )


def anchor_of(excerpts: Sequence[ShownExcerpt], line: str) -> str:
    """Where a line, ``/home/me/train.py:41 main``, is in the excerpts; "" if it is in none."""
    anchors = (
        shown.anchor for one in excerpts for shown in one.lines if line.startswith(f"{one.file}:{shown.number} ")
    )
    return next(anchors, "")


def pointers(excerpts: Sequence[ShownExcerpt], finding: int) -> tuple[Pointer, ...]:
    """The lines where the time of a finding goes, those that cost most first."""
    found = [(one, line) for one in excerpts for line in one.lines if line.finding == finding and line.hot]
    found.sort(key=lambda place: -place[1].width)
    return tuple(Pointer(line.anchor, f"{one.name}:{line.number}", line.share) for one, line in found[:_POINTED])


def files_not_read(source: SourceView) -> tuple[str, ...]:
    """Why files are missing, a sentence for each."""
    said = page_words().WORDS["not_read"]
    return tuple(said.format(file=brief(file), reason=brief(reason)) for file, reason in source.not_read)


def _excerpt(one: Excerpt, name: str, most: float, palette: Palette, findings: Mapping[str, int]) -> ShownExcerpt:
    # Each is cleaned by itself: what holds a line break of its own must not become two lines.
    texts = dedent("\n".join(clean_lines(line.text.replace("\n", " ")) for line in one.lines)).split("\n")
    shown = [
        _line(line, text, f"{name}-{line.number}", most, palette, findings)
        for line, text in zip(one.lines, texts, strict=True)
    ]
    lines = tuple(shown[slice(*_without_blank_ends(texts))])
    looks = {line.look: line.cause for line in lines if line.cause}
    return ShownExcerpt(
        one.file,
        brief(one.file.rpartition("/")[2]),
        brief(one.file),
        brief(one.function),
        percent(one.share),
        one.changed,
        lines,
        tuple(Entry(look, cause) for look, cause in looks.items()),
    )


def _without_blank_ends(texts: Sequence[str]) -> tuple[int, int]:
    """From which line to which one an excerpt is not empty."""
    full = [place for place, text in enumerate(texts) if text]
    return (full[0], full[-1] + 1) if full else (0, 0)


def _line(
    line: ExcerptLine, text: str, anchor: str, most: float, palette: Palette, findings: Mapping[str, int]
) -> ShownLine:
    seen = line.share >= _LEAST
    cause = line.cause if seen else ""
    return ShownLine(
        line.number,
        len(text) - len(text.lstrip()),
        text.lstrip(),
        percent(line.share) if seen else "",
        round(100 * line.share / most, 1) if seen else 0.0,
        palette.of(cause),
        shown_cause(cause),
        line.share >= _HOT,
        anchor,
        findings.get(cause, 0),
    )
