"""What a report says, ready to be laid out: the console and the page differ in looks only.

All text here is clean (see ``perfdoctor.reports.text``) but not escaped: markup is the layout's business.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perfdoctor.causes import CAUSES, UNATTRIBUTED
from perfdoctor.diagnosis import CauseShare, Diagnosis, Verdict
from perfdoctor.reports.cards import Card, card, texts
from perfdoctor.reports.headline import basis, claim, figures, headline, straggler, tone
from perfdoctor.reports.places import Places
from perfdoctor.reports.tables import Rows, cost_rows, job_rows, step_rows
from perfdoctor.reports.text import clean, percent, sentence

# Causes below this share of wall time go into one line of the breakdown; the JSON report has them all.
SMALL_SHARE = 0.005

COST = "What this diagnosis cost"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar: a cause, or several small ones together.

    Attributes:
        cause: cause id; "" for several.
        kind: ``ill``, ``healthy``, ``rest`` (not attributed) or ``small`` (several small ones).
        color: number of its colour among the ill ones, the same in all bars of a report.
    """

    cause: str
    title: str
    share: float
    percent: str
    kind: str
    color: int


@dataclass(frozen=True, slots=True)
class RankBar:
    """Where one trainer's time went."""

    name: str
    detail: str
    straggler: bool
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """A whole report.

    Attributes:
        bottleneck: ``cpu``, ``gpu``, ``io`` or ``communication``; "" where none is named.
        tone: ``ill``, ``healthy`` or ``unknown``.
        claim: the bottleneck and its cause in a few words.
        headline: one line with bottleneck, cause, share and predicted speed-up.
        figures: the verdict's numbers, as label and text.
        basis: what the verdict rests on, as label and text.
        breakdown: where the time goes; empty if nothing is known of it.
        not_examined: rows of probe, reason, and what would enable it.
        steps: titles with the rows below them: of the first rank, and of the straggler.
    """

    version: str
    bottleneck: str
    tone: str
    claim: str
    headline: str
    summary: str
    figures: Rows
    basis: Rows
    straggler: str
    breakdown: tuple[Part, ...]
    ranks: tuple[RankBar, ...]
    cards: tuple[Card, ...]
    not_examined: tuple[tuple[str, str, str], ...]
    overhead: Rows
    steps: tuple[tuple[str, Rows], ...]
    job: Rows


def outline(diagnosis: Diagnosis) -> Outline:
    """What a report of this diagnosis says."""
    verdict = diagnosis.verdict
    colors = {line.cause: number for number, line in enumerate(_ill(diagnosis.breakdown))}
    ranks = diagnosis.ranks if len(diagnosis.ranks) > 1 else ()
    places = Places(texts(diagnosis))
    return Outline(
        version=clean(diagnosis.version),
        bottleneck=verdict.bottleneck or "",
        tone=tone(verdict),
        claim=claim(verdict),
        headline=headline(verdict),
        summary=places.shorten(clean(verdict.summary)),
        figures=figures(verdict),
        basis=basis(verdict),
        straggler=straggler(verdict),
        breakdown=_parts(diagnosis.breakdown if _is_known(diagnosis) else (), colors),
        ranks=tuple(_rank(rank, verdict, colors) for rank in ranks),
        cards=tuple(card(finding, places, said=verdict.summary) for finding in diagnosis.findings),
        not_examined=tuple(
            (clean(item.probe), clean(item.reason), clean(item.enable)) for item in diagnosis.not_examined
        ),
        overhead=cost_rows(diagnosis.overhead),
        steps=_steps(diagnosis),
        job=job_rows(diagnosis.job),
    )


def _is_known(diagnosis: Diagnosis) -> bool:
    """Whether anything is known of where the time goes."""
    return bool(diagnosis.ranks) or any(line.cause != UNATTRIBUTED for line in diagnosis.breakdown)


def _ill(breakdown: Iterable[CauseShare]) -> list[CauseShare]:
    return [line for line in breakdown if _kind(line.cause) == "ill"]


def _kind(cause: str) -> str:
    return "rest" if cause == UNATTRIBUTED else "healthy" if CAUSES[cause].healthy else "ill"


def _parts(breakdown: Iterable[CauseShare], colors: Mapping[str, int]) -> tuple[Part, ...]:
    """The parts of a bar, largest first, small ones together at the end."""
    lines = sorted((line for line in breakdown if line.share > 0), key=lambda line: -line.share)
    small = [line for line in lines if line.share < SMALL_SHARE]
    if len(small) < 2:
        small = []
    parts = [
        Part(
            line.cause,
            sentence(CAUSES[line.cause].title),
            line.share,
            percent(line.share),
            _kind(line.cause),
            colors.get(line.cause, len(colors)),
        )
        for line in lines
        if line not in small
    ]
    if small:
        share = sum(line.share for line in small)
        title = f"{len(small)} other causes, each below {SMALL_SHARE:.1%}"
        parts.append(Part("", title, share, percent(share), "small", 0))
    return tuple(parts)


def _rank(rank: Mapping[str, Any], verdict: Verdict, colors: Mapping[str, int]) -> RankBar:
    lines = [CauseShare(line["cause"], line["share"]) for line in rank["breakdown"]]
    return RankBar(
        name=f"Rank {rank['rank']}",
        detail=_rank_detail(rank),
        straggler=rank["rank"] == verdict.straggler_rank,
        parts=_parts(lines, colors),
    )


def _steps(diagnosis: Diagnosis) -> tuple[tuple[str, Rows], ...]:
    """Whose steps they are is said where there are several ranks: one that waits shows where it waits, not why."""
    rows = step_rows(diagnosis.steps)
    if not rows:
        return ()
    if len(diagnosis.ranks) < 2:
        return (("Its steps", rows),)
    first, late = diagnosis.ranks[0]["rank"], diagnosis.verdict.straggler_rank
    if late is None or late == first:
        return ((f"Steps of rank {first}" + (", the straggler" if late == first else ""), rows),)
    own = next((step_rows(rank.get("steps", {})) for rank in diagnosis.ranks if rank["rank"] == late), ())
    straggler = ((f"Steps of rank {late}, the straggler", own),) if own else ()
    return ((f"Steps of rank {first}, which waits for rank {late}", rows), *straggler)


def _rank_detail(rank: Mapping[str, Any]) -> str:
    """Where the rank was seen: its process, or the file of its trace."""
    if "trace" in rank:
        return clean(str(rank["trace"]))
    workers = rank["workers"]
    return f"pid {rank['pid']}, {workers} worker{'' if workers == 1 else 's'}"
