"""What the page shows beside what every report says, ready to be laid out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.bands import Band, Entry, When, bands, legend, when
from perfdoctor.reports.charts import Chart, charts, ticks
from perfdoctor.reports.first_screen import (
    Change,
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
from perfdoctor.reports.outline import Outline, RankBar
from perfdoctor.reports.palette import Palette
from perfdoctor.reports.step_pictures import StepPicture, StepsRow, step_picture, steps_row
from perfdoctor.reports.text import brief, clean, duration, percent
from perfdoctor.reports.wording import cause_title, page_words

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
class Page:
    """What the page shows.

    Attributes:
        subject: which job it is about.
        sentence: the verdict in one sentence.
        first: the change to make first; None where there is none.
        prospect: what it brings; None where that is not known.
        changes: all others.
        by_card: of each finding, the numbers of its changes.
        when: of each finding, when it took its time; None where that was not seen.
        bound: what is said of the first change in place of a prospect, and of what limits the job after it.
        ticks: of the time axis: where in percent, and in words.
        span_s: seconds from the left border of the time axis to the right one.
        tick: distance of two ticks in percent.
    """

    subject: str
    sentence: str
    waterfall: tuple[Slice, ...]
    first: Change | None
    prospect: Prospect | None
    bound: tuple[str, ...]
    rests: tuple[tuple[str, str, str], ...]
    changes: tuple[Change, ...]
    by_card: tuple[tuple[int, ...], ...]
    when: tuple[When | None, ...]
    bands: tuple[Band, ...]
    legend: tuple[Entry, ...]
    steps_rows: tuple[StepsRow, ...]
    charts: tuple[Chart, ...]
    charts_left_out: int
    span_s: float
    ticks: tuple[tuple[float, str], ...]
    tick: float
    flames: tuple[Flame, ...]
    lines: tuple[tuple[str, str, str, str], ...]
    steps: tuple[StepPicture, ...]
    heat: Heat | None
    not_drawn: tuple[str, ...]
    method: tuple[str, ...]


def page_outline(diagnosis: Diagnosis, report: Outline) -> Page:
    """What the page of a diagnosis shows beside its outline."""
    activity, verdict = diagnosis.activity, diagnosis.verdict
    palette = Palette(_causes(diagnosis))
    span_s = activity.watched_s or max((one.times[-1] for one in diagnosis.series if one.times), default=0.0)
    drawn = charts(diagnosis.series, span_s)
    changes, by_card = changes_of(diagnosis, report.cards)
    # The first finding is the verdict's.
    first = changes[0] if report.tone == "bottleneck" and by_card and by_card[0] else None
    prospect = prospect_of(first.fix, diagnosis.steps) if first else None
    # Ranks that exchange gradients have steps of the same length: the first one's, and where one is late, its.
    steps = [times for times in activity.steps if times in activity.steps[:1] or times.rank == verdict.straggler_rank]
    marks = ticks(span_s) if span_s > 0 else []
    return Page(
        subject=subject(diagnosis.job),
        sentence=verdict_sentence(verdict, report),
        waterfall=waterfall(report, palette),
        first=first,
        prospect=prospect,
        bound=tuple(bounds(diagnosis, first, prospect)),
        rests=tuple(rests_on(diagnosis, span_s)),
        changes=tuple(changes[1:] if first else changes),
        by_card=by_card,
        when=tuple(when(activity, finding, palette) for finding in diagnosis.findings),
        bands=tuple(bands(activity, palette)),
        legend=tuple(legend(activity, palette)),
        steps_rows=tuple(steps_row(times, span_s) for times in steps),
        charts=tuple(drawn),
        charts_left_out=len({one.chart for one in diagnosis.series}) - len(drawn),
        span_s=round(span_s, 6),
        ticks=tuple((round(100 * at / span_s, 3), duration(at)) for at in marks),
        tick=round(100 * marks[1] / span_s, 3) if len(marks) > 1 else 100.0,
        flames=tuple(flame(tree, palette) for tree in activity.code),
        lines=tuple(
            (percent(one.share), palette.of(one.cause), cause_title(one.cause), brief(one.line))
            for one in activity.lines
        ),
        steps=tuple(map(step_picture, steps)),
        heat=_heat(diagnosis, report.ranks) if report.ranks else None,
        not_drawn=tuple(clean(item) for item in diagnosis.not_drawn),
        method=_method(verdict.level),
    )


def _causes(diagnosis: Diagnosis) -> Iterable[str]:
    """All causes of which a colour may be needed, the verdict's first and then by what they cost."""
    if diagnosis.verdict.cause:
        yield diagnosis.verdict.cause
    yield from (line.cause for line in sorted(diagnosis.breakdown, key=lambda line: -line.share))
    for track in diagnosis.activity.tracks:
        yield from track.shares


def _heat(diagnosis: Diagnosis, bars: Sequence[RankBar]) -> Heat:
    """Ranks by causes, those that take most, and how long each waits for the others."""
    shares = [{line["cause"]: line["share"] for line in rank["breakdown"]} for rank in diagnosis.ranks]
    waits = [sum(rank.get("waits_for", {}).values()) for rank in diagnosis.ranks]
    total = {cause: sum(of.get(cause, 0.0) for of in shares) for of in shares for cause in of}
    causes = sorted(total, key=lambda cause: -total[cause])[:_HEAT_CAUSES]
    rows = tuple(
        HeatRow(
            page_words().WORDS["rank"].format(rank=rank["rank"]),
            bar.detail,
            rank["rank"] == diagnosis.verdict.straggler_rank,
            tuple((value, percent(value)) for value in (wait, *(of.get(cause, 0.0) for cause in causes))),
        )
        for rank, of, wait, bar in zip(diagnosis.ranks, shares, waits, bars, strict=True)
    )
    return Heat((page_words().WORDS["waits"], *(cause_title(cause) for cause in causes)), rows)


def _method(level: str) -> tuple[str, ...]:
    words = page_words()
    return (*words.METHOD.get(level, ()), *words.METHOD_ALWAYS)
