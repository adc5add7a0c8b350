"""What a report says, ready to be laid out: the console and the page differ in layout only.

All text here is clean (see ``perfdoctor.reports.text``) but not escaped: markup is the layout's business.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfdoctor.causes import CAUSES, UNATTRIBUTED
from perfdoctor.diagnosis import CauseShare, Diagnosis, Verdict, expected_freed, frees_much
from perfdoctor.messages import say
from perfdoctor.reports.cards import Card, ShortPaths, card, finding_title, gain_between, gain_of, texts
from perfdoctor.reports.rows import Rows, cost_rows, job_rows, setting_rows, step_rows
from perfdoctor.reports.text import clean, duration, lower_first, percent, sentence
from perfdoctor.reports.wording import cause_title, label, worded
from perfdoctor.results.rank_groups import Crowd, RankGroup
from perfdoctor.results.stuck import Stuck

# Causes below this share of wall time go into one line of the breakdown; the JSON report has them all.
SMALL_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class BarSegment:
    """One part of a bar: a cause, or several small ones together.

    Attributes:
        cause: cause id; "" for several.
        kind: ``bottleneck``, ``healthy``, ``rest`` (not attributed) or ``small`` (several small ones).
    """

    cause: str
    title: str
    share: float
    percent: str
    kind: str


@dataclass(frozen=True, slots=True)
class RankBar:
    """Where one trainer's time went; of ``waits`` how long it waits for others, in words."""

    name: str
    detail: str
    straggler: bool
    parts: tuple[BarSegment, ...]
    waits: str = ""


@dataclass(frozen=True, slots=True)
class Outline:
    """A whole report.

    Attributes:
        bottleneck: ``cpu``, ``gpu``, ``io`` or ``communication``; "" where none is named.
        tone: ``bottleneck``, ``healthy`` or ``unknown``.
        claim: the bottleneck and its cause in a few words.
        headline: one line with bottleneck, cause, share, what a fix brings, and what would bring more.
        figures: the verdict's numbers, as label and text.
        basis: what the verdict rests on, as label and text.
        breakdown: where the time goes; empty if nothing is known of it.
        not_examined: rows of probe, reason, and what would enable it.
        ranks: all of them, or of many those that matter.
        first: the change to make first: its finding and its place among those of it, from 0; None for none.
        second: one to something else that frees more than all of the bottleneck, likewise.
        groups: of many ranks those that are alike, as one each.
        halts: of a job that is stuck, who stands where; likewise what to do about it, and what would refute that.
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
    breakdown: tuple[BarSegment, ...]
    ranks: tuple[RankBar, ...]
    groups: tuple[RankBar, ...]
    cards: tuple[Card, ...]
    first: tuple[int, int] | None
    second: tuple[int, int] | None
    not_examined: tuple[tuple[str, str, str], ...]
    overhead: Rows
    steps: tuple[tuple[str, Rows], ...]
    job: Rows
    settings: Rows
    halts: Rows
    next_move: str
    refuted_by: str

    @property
    def job_in_short(self) -> Rows:
        """What was watched, with all settings in one row."""
        if not self.settings:
            return self.job
        return (
            *self.job,
            (
                label("settings"),
                label("listed", items=tuple(label("named", name=name, value=value) for name, value in self.settings)),
            ),
        )


def outline(diagnosis: Diagnosis) -> Outline:
    """What a report of this diagnosis says."""
    verdict = diagnosis.verdict
    stuck = diagnosis.stuck
    # Where the time of a job goes says nothing of one that does not move.
    ranks = shown_ranks(diagnosis) if stuck is None else ()
    paths = ShortPaths(texts(diagnosis))
    summary = paths.shorten(clean(worded(verdict.summary)))  # which names a file in full, and what follows does not
    unequal = verdict.cause if _is_unequal(verdict) else None
    titles = {finding.cause: finding_title(finding) for finding in diagnosis.findings}
    cards = tuple(
        card(finding, paths, said=verdict.summary, unequal=finding.cause == unequal) for finding in diagnosis.findings
    )
    first, second = _first_changes(diagnosis)
    faster = first if _tone(verdict) == "healthy" else second
    return Outline(
        version=clean(diagnosis.version),
        bottleneck=verdict.bottleneck or "",
        tone=_tone(verdict) if stuck is None else "bottleneck",
        claim=_claim(diagnosis) if stuck is None else _stuck_claim(stuck),
        headline=_headline(diagnosis, cards, faster) if stuck is None else _stuck_claim(stuck),
        summary=summary,
        figures=_figures(diagnosis) if stuck is None else _stuck_figures(stuck),
        basis=_basis(verdict),
        straggler=_straggler(verdict) or _late_place(diagnosis.crowd),
        breakdown=_parts(diagnosis.breakdown if _is_known(diagnosis) and stuck is None else (), titles),
        ranks=tuple(_rank(rank, verdict, titles) for rank in ranks),
        groups=() if diagnosis.crowd is None else tuple(map(_of_group, diagnosis.crowd.groups)),
        cards=cards,
        first=first,
        second=second,
        not_examined=tuple(
            (clean(item.probe), clean(worded(item.reason)), clean(worded(item.enable)))
            for item in diagnosis.not_examined
        ),
        overhead=cost_rows(diagnosis.overhead),
        steps=_steps(diagnosis),
        job=job_rows(diagnosis.job),
        settings=setting_rows(diagnosis.job),
        halts=() if stuck is None else _halts(stuck, paths),
        next_move="" if stuck is None else clean(worded(stuck.next_move)),
        refuted_by="" if stuck is None else clean(worded(stuck.refuted_by)),
    )


def shown_ranks(diagnosis: Diagnosis) -> tuple[dict[str, Any], ...]:
    """The ranks that a report shows one by one: none if there is one, all of few, and of many those that matter."""
    crowd = diagnosis.crowd
    if crowd is None:
        return diagnosis.ranks if len(diagnosis.ranks) > 1 else ()
    numbers = [rank for rank, _ in crowd.matter] or [group.ranks[0] for group in crowd.groups]
    by_number = {rank["rank"]: rank for rank in diagnosis.ranks}
    return tuple(by_number[number] for number in numbers if number in by_number)


def _of_group(group: RankGroup) -> RankBar:
    lines = [CauseShare(cause, share) for cause, share in group.shares.items()]
    alike = label("alike_ranks", count=len(group.ranks), first=group.ranks[0], waits=percent(group.waits))
    return RankBar(name=sentence(alike), detail="", straggler=False, parts=_parts(lines, {}))


def _claim(diagnosis: Diagnosis) -> str:
    """The bottleneck and what it is, in a few words."""
    verdict = diagnosis.verdict
    if verdict.bottleneck is None or verdict.cause is None:
        return label("no_bottleneck_named")
    if CAUSES[verdict.cause].healthy:
        return label("unequal_ranks" if _is_unequal(verdict) else "no_bottleneck")
    return label("bottleneck", resource=verdict.bottleneck, title=_verdict_title(diagnosis, verdict.cause))


def _verdict_title(diagnosis: Diagnosis, cause: str) -> str:
    """What the cause of a verdict is, as its finding says it."""
    found = diagnosis.verdict_finding
    return cause_title(cause) if found is None else finding_title(found)


def _stuck_claim(stuck: Stuck) -> str:
    """That a job is stuck, and on what, in a few words."""
    return label("is_stuck", title=worded(say("stuck.title", kind=stuck.kind)))


def _stuck_figures(stuck: Stuck) -> Rows:
    """How sure it is that a job is stuck, for how long, and whom the ranks wait for."""
    rows = [(label("still_since"), duration(stuck.since_s)), (label("confidence"), percent(stuck.confidence))]
    named = (stuck.rank,) if stuck.rank is not None else stuck.ranks
    return (
        (*rows, (label("held_up_by"), label("sequence", items=tuple(label("rank", rank=rank) for rank in named))))
        if named
        else tuple(rows)
    )


def _halts(stuck: Stuck, paths: ShortPaths) -> Rows:
    """Who stands where: the chain first, then those that wait for it."""
    halts = (*stuck.chain, *stuck.waiting)
    several = len({halt.rank for halt in halts}) > 1
    rows = (
        (worded(say("stuck.who", halt=halt, several=several)), worded(say("stuck.where", halt=halt))) for halt in halts
    )
    return tuple((clean(who), paths.shorten(clean(where))) for who, where in rows)


def _gain(diagnosis: Diagnosis) -> str:
    """What fixing the first cause brings, in words; "" where that is nothing.

    What a fix does not speed up, the job's start for instance, says nothing of a fix. Of unequal ranks it is known how
    fast equal ones would be.
    """
    verdict = diagnosis.verdict
    if verdict.cause is None or verdict.predicted_speedup <= 1:
        return ""
    if CAUSES[verdict.cause].healthy:
        return gain_between(verdict.predicted_speedup, verdict.predicted_speedup)
    found = diagnosis.verdict_finding
    return gain_of(found) if found else gain_between(1.0, verdict.predicted_speedup)


def _headline(diagnosis: Diagnosis, cards: Sequence[Card], more: tuple[int, int] | None) -> str:
    """One line with bottleneck, cause, share and what a fix brings; and what would make the job faster than that."""
    verdict = diagnosis.verdict
    said, share = _claim(diagnosis), percent(verdict.share)
    if verdict.bottleneck is None or verdict.cause is None:
        return said
    gain = _gain(diagnosis)
    faster = lower_first(cards[more[0]].changes[more[1]].headline) if more else ""
    if CAUSES[verdict.cause].healthy:
        title = _verdict_title(diagnosis, verdict.cause)
        return label("headline_healthy", claim=said, share=share, title=title, gain=gain, faster=faster)
    # An evaluation that is left out reads no batches either, and a loop's operations have a backward pass.
    beyond = 1 - 1 / verdict.predicted_speedup > verdict.share + SMALL_SHARE
    return label("headline", claim=said, share=share, gain=gain, beyond=beyond, faster=faster)


def _first_changes(diagnosis: Diagnosis) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The change to make first, and one to something else that frees more than the bottleneck takes; None for none.

    Each as the numbers of its finding and of it among that one's changes. The first is the verdict's own. A sound job
    needs none: of one that would make it much faster it is told all the same.
    """
    verdict, findings = diagnosis.verdict, diagnosis.findings
    own = (0, 0) if findings and findings[0].fixes else None
    if diagnosis.stuck is not None:
        return own, None
    tone = _tone(verdict)
    more = None if tone == "unknown" or _is_unequal(verdict) else _freeing_more(diagnosis)
    return (own, more) if tone == "bottleneck" else (more, None)


def _freeing_more(diagnosis: Diagnosis) -> tuple[int, int] | None:
    """The change outside of the bottleneck that frees most, where that is much, and more than the bottleneck takes."""
    verdict = diagnosis.verdict
    least, bottleneck = (0.0, None) if _tone(verdict) == "healthy" else (verdict.share, verdict.cause)
    large = [
        (fix.predicted_speedup or 1.0, place, number)
        for place, finding in enumerate(diagnosis.findings)
        for number, fix in enumerate(finding.fixes)
        if finding.cause != bottleneck and frees_much(fix) and expected_freed(fix) > least
    ]
    _, place, number = max(large, key=lambda found: found[0], default=(1.0, -1, -1))
    return (place, number) if large else None


def _tone(verdict: Verdict) -> str:
    """``bottleneck``, ``healthy`` or ``unknown``."""
    if verdict.bottleneck is None or verdict.cause is None:
        return "unknown"
    return "healthy" if CAUSES[verdict.cause].healthy and not _is_unequal(verdict) else "bottleneck"


def _is_unequal(verdict: Verdict) -> bool:
    """Whether ranks wait for others that do more of what is no bottleneck in itself."""
    healthy = verdict.cause is not None and CAUSES[verdict.cause].healthy
    return healthy and (verdict.straggler_rank is not None or verdict.predicted_speedup > 1)


def _figures(diagnosis: Diagnosis) -> Rows:
    """The verdict's numbers, as label and text."""
    verdict = diagnosis.verdict
    if verdict.cause is None or verdict.bottleneck is None:
        return ()
    rows = [(label("share_of_time"), percent(verdict.share))]
    if gain := _gain(diagnosis):
        rows.append((label("predicted_speedup"), gain))
    rows.append((label("confidence"), percent(verdict.confidence)))
    if verdict.straggler_rank is not None:
        rows.append((label("straggler_rank"), label("rank", rank=verdict.straggler_rank)))
    return tuple(rows)


def _basis(verdict: Verdict) -> Rows:
    """What the verdict rests on, as label and text."""
    level = (label("how_known"), clean(worded(verdict.level)))
    return (level,) if verdict.cause is None else (level, (label("cause"), verdict.cause))


def _straggler(verdict: Verdict) -> str:
    """Who holds the others back, in a sentence; "" if nobody does."""
    rank = verdict.straggler_rank
    return "" if rank is None else label("others_wait", rank=rank)


def _late_place(crowd: Crowd | None) -> str:
    """Where those are that hold the others back, in a sentence, if it is more than one rank; "" if it is no place."""
    if crowd is not None and crowd.late_host:
        return label("late_host", host=clean(crowd.late_host))
    if crowd is not None and crowd.late_position is not None:
        return label("late_position", position=crowd.late_position)
    return ""


def _is_known(diagnosis: Diagnosis) -> bool:
    """Whether anything is known of where the time goes."""
    return bool(diagnosis.ranks) or any(line.cause != UNATTRIBUTED for line in diagnosis.breakdown)


def _kind(cause: str) -> str:
    return "rest" if cause == UNATTRIBUTED else "healthy" if CAUSES[cause].healthy else "bottleneck"


def _parts(breakdown: Iterable[CauseShare], titles: Mapping[str, str]) -> tuple[BarSegment, ...]:
    """The parts of a bar, largest first, small ones together at the end, each called as its finding is."""
    lines = sorted((line for line in breakdown if line.share > 0), key=lambda line: -line.share)
    small = [line for line in lines if line.share < SMALL_SHARE]
    if len(small) < 2:
        small = []
    parts = [
        BarSegment(
            line.cause,
            sentence(titles.get(line.cause) or cause_title(line.cause)),
            line.share,
            percent(line.share),
            _kind(line.cause),
        )
        for line in lines
        if line not in small
    ]
    if small:
        share = sum(line.share for line in small)
        title = label("small_causes", count=len(small), limit=f"{SMALL_SHARE:.1%}")
        parts.append(BarSegment("", title, share, percent(share), "small"))
    return tuple(parts)


def _rank(rank: Mapping[str, Any], verdict: Verdict, titles: Mapping[str, str]) -> RankBar:
    lines = [CauseShare(line["cause"], line["share"]) for line in rank["breakdown"]]
    return RankBar(
        name=sentence(label("rank", rank=rank["rank"])),
        detail=_rank_detail(rank),
        straggler=rank["rank"] == verdict.straggler_rank,
        parts=_parts(lines, titles),
        waits=_waits(rank.get("waits_for", {})) if verdict.straggler_rank is not None or _is_unequal(verdict) else "",
    )


def _waits(waits_for: Mapping[str, float]) -> str:
    """How long a rank waits for others, and for which one most; "" where that is next to nothing."""
    whole = sum(waits_for.values())
    if whole < SMALL_SHARE:
        return ""
    most = max(waits_for, key=lambda rank: waits_for[rank])
    return label("waits_for_ranks", share=percent(whole), rank=most, others=len(waits_for) - 1)


def _steps(diagnosis: Diagnosis) -> tuple[tuple[str, Rows], ...]:
    """Whose steps they are is said where there are several ranks: one that waits shows where it waits, not why."""
    rows = step_rows(diagnosis.steps)
    if not rows:
        return ()
    if len(diagnosis.ranks) < 2:
        return ((label("its_steps"), rows),)
    first, late = diagnosis.ranks[0]["rank"], diagnosis.verdict.straggler_rank
    if late is None or late == first:
        return ((label("steps_of", rank=first, straggler=late == first), rows),)
    own = next((step_rows(rank.get("steps", {})) for rank in diagnosis.ranks if rank["rank"] == late), ())
    straggler = ((label("steps_of", rank=late, straggler=True), own),) if own else ()
    return ((label("steps_of_waiting", rank=first, waits_for=late), rows), *straggler)


def _rank_detail(rank: Mapping[str, Any]) -> str:
    """Where the rank was seen: its process, or the file of its trace."""
    if "trace" in rank:
        return clean(str(rank["trace"]))
    if "recording" in rank:
        return clean(f"{rank['host']}, {rank['recording']}")
    return label("pid_and_workers", pid=rank["pid"], workers=rank["workers"])
