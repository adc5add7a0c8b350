"""What the page shows beside what every report says, ready to be laid out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perfdoctor.diagnosis import OUTSIDE, Diagnosis
from perfdoctor.reports.bands import Band, Entry, PhasesRow, When, bands, legend, phases_rows, when
from perfdoctor.reports.cards import ShortPaths, by_name
from perfdoctor.reports.charts import Chart, charts, ticks
from perfdoctor.reports.first_screen import (
    AdvisedChange,
    Prospect,
    Slice,
    bounds,
    changes_of,
    prospect_of,
    rests_on,
    subject,
    verdict_sentence,
    waterfall,
)
from perfdoctor.reports.flame import Flame, flame
from perfdoctor.reports.outline import Outline, RankBar, shown_ranks
from perfdoctor.reports.palette import Palette
from perfdoctor.reports.source_view import Pointer, ShownExcerpt, anchor_of, files_not_read, pointers, source_view
from perfdoctor.reports.step_pictures import StepPicture, StepsRow, shades_of, step_picture, steps_row
from perfdoctor.reports.text import brief, clean, duration, percent
from perfdoctor.reports.wording import cause_title, label, page_words
from perfdoctor.results.activity import Activity, CodeNode, Excerpt
from perfdoctor.results.rank_groups import Crowd

_HOST_ROWS = 2000  # hosts whose ranks the page shows
_HEAT_CAUSES = 6  # columns of the heat map that fit beside the ranks


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A rank in the heat map: fractions by column, None where it has none."""

    name: str
    detail: str
    straggler: bool
    cells: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Heat:
    """The heat map of the ranks."""

    columns: tuple[str, ...]
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, slots=True)
class HostHeat:
    """How long each rank of a job waits for others, by host and position.

    Attributes:
        columns: positions on a host, from 0.
        rows: host, and of each rank the wait as a part of the longest one and as percent.
        left_out: rows that there are more.
    """

    columns: tuple[int, ...]
    rows: tuple[tuple[str, tuple[tuple[float, int], ...]], ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Page:
    """What the page shows.

    Attributes:
        subject: which job it is about.
        sentence: the verdict in one sentence.
        lead: the verdict's summary, with files by their names.
        figures: the verdict's numbers that the sentence does not say.
        first: the change to make first; None where there is none.
        prospect: what it brings; None where that is not known.
        changes: all others.
        by_card: of each finding, the numbers of its changes.
        places: of each finding, the lines of the source where its time goes.
        when: of each finding, when it took its time; None where that was not seen.
        bound: what is said of the first change in place of a prospect, and of what limits the job after it.
        ticks: of the time axis: where in percent, and in words.
        span_s: seconds from the left border of the time axis to the right one.
        tick: distance of two ticks in percent.
        lines: that cost most: share, look and title of the cause, the line, and where it is in the source.
        source: of the lines that cost most.
        not_read: what of that could not be read.
    """

    subject: str
    sentence: str
    lead: str
    figures: tuple[tuple[str, str], ...]
    waterfall: tuple[Slice, ...]
    first: AdvisedChange | None
    prospect: Prospect | None
    bound: tuple[str, ...]
    rests: tuple[tuple[str, str, str], ...]
    changes: tuple[AdvisedChange, ...]
    by_card: tuple[tuple[int, ...], ...]
    places: tuple[tuple[Pointer, ...], ...]
    when: tuple[When | None, ...]
    bands: tuple[Band, ...]
    legend: tuple[Entry, ...]
    phases_rows: tuple[PhasesRow, ...]
    steps_rows: tuple[StepsRow, ...]
    charts: tuple[Chart, ...]
    charts_left_out: int
    span_s: float
    ticks: tuple[tuple[float, str], ...]
    tick: float
    flames: tuple[Flame, ...]
    lines: tuple[tuple[str, str, str, str, str], ...]
    source: tuple[ShownExcerpt, ...]
    not_read: tuple[str, ...]
    steps: tuple[StepPicture, ...]
    heat: Heat | None
    groups: tuple[HeatRow, ...]
    hosts: HostHeat | None
    not_drawn: tuple[str, ...]
    method: tuple[str, ...]


def page_outline(diagnosis: Diagnosis, report: Outline) -> Page:
    """What the page of a diagnosis shows beside its outline."""
    activity, verdict = _drawn(diagnosis), diagnosis.verdict
    palette, shades = Palette(_causes(diagnosis)), shades_of(activity)
    span_s = activity.watched_s or max((one.times[-1] for one in diagnosis.series if one.times), default=0.0)
    drawn = charts(diagnosis.series, span_s)
    changes, by_card = changes_of(diagnosis, report)
    first = changes[0] if report.first else None
    prospect = prospect_of(first.fix, diagnosis.steps) if first else None
    # Ranks that exchange gradients have steps of the same length: the first one's, and where one is late, its.
    steps = [times for times in activity.steps if times in activity.steps[:1] or times.rank == verdict.straggler_rank]
    marks = ticks(span_s) if span_s > 0 else []
    numbers: dict[str, int] = {}
    for number, finding in enumerate(diagnosis.findings, start=1):
        numbers.setdefault(finding.cause, number)
    source = source_view(activity.source, palette, numbers)
    sentence, said = verdict_sentence(diagnosis, report), (label("share_of_time"), label("straggler_rank"))
    return Page(
        subject=subject(diagnosis.job),
        sentence=sentence,
        lead=by_name(report.summary),
        figures=tuple(row for row in report.figures if row[0] not in said or row[1] not in sentence),
        waterfall=waterfall(report, palette),
        first=first,
        prospect=prospect,
        bound=tuple(bounds(diagnosis, first, prospect)),
        rests=tuple(rests_on(diagnosis, span_s)),
        changes=tuple(changes[1:] if first else changes),
        by_card=by_card,
        places=tuple(pointers(source, number) for number, _ in enumerate(report.cards, start=1)),
        when=tuple(when(activity, finding, palette) for finding in diagnosis.findings),
        bands=tuple(bands(activity, palette)),
        legend=tuple(legend(activity, palette)),
        phases_rows=tuple(phases_rows(activity, shades)),
        steps_rows=tuple(steps_row(times, span_s) for times in steps),
        charts=tuple(drawn),
        charts_left_out=len({one.chart for one in diagnosis.series}) - len(drawn),
        span_s=round(span_s, 6),
        ticks=tuple((round(100 * at / span_s, 3), duration(at)) for at in marks),
        tick=round(100 * marks[1] / span_s, 3) if len(marks) > 1 else 100.0,
        flames=tuple(flame(tree, palette) for tree in activity.code),
        lines=_lines(activity, palette, source),
        source=source,
        not_read=files_not_read(activity.source),
        steps=tuple(step_picture(times, palette, shades) for times in steps if times.usual.parts),
        heat=_heat(diagnosis, report.ranks) if report.ranks else None,
        groups=_groups(report),
        hosts=_hosts(diagnosis.crowd),
        not_drawn=tuple(clean(item) for item in diagnosis.not_drawn),
        method=_method(diagnosis),
    )


def _lines(
    activity: Activity, palette: Palette, source: tuple[ShownExcerpt, ...]
) -> tuple[tuple[str, str, str, str, str], ...]:
    """The lines that cost most, as ``Page.lines``."""
    names = ShortPaths(one.line for one in activity.lines)
    return tuple(
        (
            percent(one.share),
            palette.of(one.cause),
            cause_title(one.cause) if one.cause else "",
            names.shorten(brief(one.line)),
            anchor_of(source, one.line),
        )
        for one in activity.lines
    )


def _drawn(diagnosis: Diagnosis) -> Activity:
    """What is drawn; of a job that is stuck nothing by causes, which say where the time of one that moves goes."""
    found = diagnosis.activity
    if diagnosis.stuck is None:
        return found
    source = replace(found.source, excerpts=tuple(map(_excerpt_without_causes, found.source.excerpts)))
    return replace(
        found,
        tracks=(),
        phases=(),
        code=tuple(replace(tree, calls=tuple(map(_call_without_causes, tree.calls))) for tree in found.code),
        lines=tuple(replace(line, cause="") for line in found.lines),
        source=source,
    )


def _excerpt_without_causes(excerpt: Excerpt) -> Excerpt:
    return replace(excerpt, lines=tuple(replace(line, cause="") for line in excerpt.lines))


def _call_without_causes(call: CodeNode) -> CodeNode:
    return replace(call, causes={"": call.share}, calls=tuple(map(_call_without_causes, call.calls)))


def _causes(diagnosis: Diagnosis) -> Iterable[str]:
    """All causes of which a colour may be needed, the verdict's first and then by what they cost."""
    if diagnosis.verdict.cause:
        yield diagnosis.verdict.cause
    yield from (line.cause for line in sorted(diagnosis.breakdown, key=lambda line: -line.share))
    for track in diagnosis.activity.tracks:
        yield from track.shares


def _heat(diagnosis: Diagnosis, bars: Sequence[RankBar]) -> Heat:
    """Ranks by causes, those that take most, and how long each waits for the others."""
    ranks = shown_ranks(diagnosis)
    shares = [{line["cause"]: line["share"] for line in rank["breakdown"]} for rank in ranks]
    waits = [sum(rank.get("waits_for", {}).values()) for rank in ranks]
    total = {cause: sum(of.get(cause, 0.0) for of in shares) for of in shares for cause in of}
    causes = sorted(total, key=lambda cause: -total[cause])[:_HEAT_CAUSES]
    rows = tuple(
        HeatRow(
            page_words().WORDS["rank"].format(rank=rank["rank"]),
            bar.detail,
            rank["rank"] == diagnosis.verdict.straggler_rank,
            tuple((value, percent(value)) for value in (wait, *(of.get(cause, 0.0) for cause in causes))),
        )
        for rank, of, wait, bar in zip(ranks, shares, waits, bars, strict=True)
    )
    return Heat((page_words().WORDS["waits"], *(cause_title(cause) for cause in causes)), rows)


def _groups(report: Outline) -> tuple[HeatRow, ...]:
    """Groups of ranks that are alike, in words: what takes most of their time."""
    return tuple(
        HeatRow(bar.name, "", False, tuple((part.share, f"{part.percent} {part.title}") for part in bar.parts[:4]))
        for bar in report.groups
    )


def _hosts(crowd: Crowd | None) -> HostHeat | None:
    if crowd is None:
        return None
    most = max((wait for row in crowd.rows for _, wait in row.waits), default=0.0) or 1.0
    rows = tuple(
        (
            clean(row.host) or page_words().WORDS["rank"].format(rank=row.waits[0][0]),
            tuple((wait / most, round(100 * wait)) for _, wait in row.waits),
        )
        for row in crowd.rows[:_HOST_ROWS]
    )
    columns = tuple(range(max(len(cells) for _, cells in rows)))
    return HostHeat(columns, rows, max(0, len(crowd.rows) - _HOST_ROWS))


def _method(diagnosis: Diagnosis) -> tuple[str, ...]:
    words, level, job = page_words(), diagnosis.verdict.level, diagnosis.job
    counted, entered = "unit" in diagnosis.steps, "trace_way" in diagnosis.overhead
    changed = [words.METHOD_COUNTED] if counted else []
    if level == OUTSIDE and not counted and not entered:
        changed.append(words.METHOD_UNCHANGED)
    followed = [words.FOLLOWED.format(**job)] if "followed_samples" in job else []
    made = map(clean, diagnosis.method)
    return (*made, *words.METHOD.get(level, ()), *changed, *followed, *words.METHOD_ALWAYS)
