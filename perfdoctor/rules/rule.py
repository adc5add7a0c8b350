"""A rule: what is said of one cause, and how a finding is made of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from perfdoctor.causes import CAUSES, CONTENTION
from perfdoctor.diagnosis import Advice, Evidence, Finding, Fix, expected_freed
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import Message, say
from perfdoctor.results.edits import more_rarely
from perfdoctor.rules.case import Case
from perfdoctor.rules.detours import without_detours
from perfdoctor.rules.gains import COMPILING, LARGER_BATCH, freed, with_gain
from perfdoctor.rules.neighbours import without_neighbours
from perfdoctor.rules.workers import supply_floor

Fixes = Iterable[Fix | Advice]
# What shows how much of a cause may be a profiler's own doing.
PROFILER_COST = ("traced_recording", "traced_shorter", "traced_step_alone")
_SHOWN = 3  # lines, files and kernels of a cause
_EXACT = ("gpu", "trace", "timer", "network")  # counters and clocks: what is next to nothing there was measured


def _always(case: Case) -> bool:
    return True


def _nothing(case: Case) -> Iterable[Message]:
    return ()


@dataclass(frozen=True)
class Rule:
    """What proves one cause, and what to do about it.

    Attributes:
        cause: its id.
        what: what takes the time, the subject of the summary; or how to tell it of a case.
        evidence: names of the numbers to show where they were measured; see ``perfdoctor.metrics.names``.
        fixes: what to do, the best first; those whose gain can be computed change places by it.
        refuted_by: the test that would prove the finding wrong.
        applies: of several rules of a cause the first one that applies is taken. A rule for some cases only says more
            than the cause's title does: what takes the time there is the finding's title.
        clauses: what the summary adds after what takes how much time.
        remarks: sentences that follow the summary.
        left: what a fix leaves of the wall time at least, as a fraction; None where nothing but the share limits it.
    """

    cause: str
    what: Message | Callable[[Case], Message]
    evidence: tuple[str, ...]
    fixes: Callable[[Case], Fixes]
    refuted_by: Message
    applies: Callable[[Case], bool] = _always
    clauses: Callable[[Case], Iterable[Message]] = _nothing
    remarks: Callable[[Case], Iterable[Message]] = _nothing
    left: Callable[[Case], float | None] | None = None

    def __call__(self, case: Case) -> Finding | None:
        """The finding; None where the cause takes too little time to be reported."""
        share = case.share(self.cause)
        alone = share if self.cause == CONTENTION else without_neighbours(case, share)
        if alone < thresholds.REPORTED_SHARE:
            return None
        fixes = by_gain(tuple(self._with_gains(case)))[: 1 if alone < thresholds.MIN_SHARE else None]
        return Finding(
            self.cause,
            share,
            severity(self.cause, share),
            self._speedup(case, fixes),
            self._summary(case),
            tuple(self._evidence(case)),
            fixes,
            self.refuted_by,
            _ranks(case, self.cause),
            title="" if self.applies is _always else self._subject(case),
        )

    def _subject(self, case: Case) -> Message:
        return self.what if isinstance(self.what, Message) else self.what(case)

    def _with_gains(self, case: Case) -> Iterator[Fix | Advice]:
        left = self.left(case) if self.left else None
        for fix in without_detours(self.fixes(case), case, self.cause):
            if not isinstance(fix, Advice):
                yield fix
            elif case.can_compile or fix.message.id not in COMPILING:
                yield with_gain(fix, case, self.cause, left)

    def _evidence(self, case: Case) -> Iterator[Evidence]:
        """The share itself, the numbers that were measured, how late its ranks are, and where most of it is."""
        spent = say("finding.spent_on", cause=say("causes.title", cause=self.cause))
        yield Evidence(spent, round(case.share(self.cause), 4), "of the time", "breakdown")
        for name in self.evidence:
            yield from filter(_says_something, case.evidence(name))
        ranks = _ranks(case, self.cause)
        if len(set(ranks)) < len(case.trainers):
            late = {trainer.rank: trainer.numbers.get("longer") for trainer in case.trainers}
            yield from filter(None, (late.get(rank) for rank in ranks))
        yield from _places(case, self.cause)

    def _summary(self, case: Case) -> Message:
        lines, ranks = case.lines.get(self.cause, ()), _ranks(case, self.cause)
        return say(
            "finding.summary",
            what=self._subject(case),
            share=case.share(self.cause),
            line=lines[0][0] if lines else None,
            most=bool(lines) and lines[0][1] >= thresholds.MOSTLY,
            path=case.hot_path(self.cause),
            ranks=ranks if len(set(ranks)) < len(case.trainers) else (),
            awaited=case.waits_for(ranks),
            clauses=tuple(self.clauses(case)),
            remarks=(*self._seen_once(case), *self.remarks(case), *self._after_input(case)),
        )

    def _seen_once(self, case: Case) -> Iterator[Message]:
        """That it was met in one stretch only, so that how often it comes is not known."""
        if (seconds := case.once.get(self.cause)) is not None:
            yield say("finding.once", seconds=seconds, watched=case.watched_s)

    def _after_input(self, case: Case) -> Iterator[Message]:
        """That less of it makes nothing faster as long as loader workers are what the job waits for."""
        floor, healthy = supply_floor(case, self.cause), CAUSES[self.cause].healthy
        if floor is not None and not healthy and 1 - floor < thresholds.MOSTLY * case.share(self.cause):
            yield say("finding.after_input", busy=floor)

    def _speedup(self, case: Case, fixes: Iterable[Fix | Advice]) -> float:
        """That of the best fix, where the speed-up of one could be computed, within what the next bottleneck allows.

        A fix may free more than its cause: an evaluation that is left out reads no batches either.
        """
        most = 1.0 if CAUSES[self.cause].healthy else freed(case.share(self.cause))
        speedup = next((fix.predicted_speedup for fix in fixes if fix.predicted_speedup), most)
        left = self.left(case) if self.left else None
        return speedup if left is None else max(1.0, min(speedup, 1 / max(left, thresholds.LEAST_LEFT)))


def severity(cause: str, share: float) -> str:
    """``high``, ``medium`` or ``low`` by share of wall time; ``none`` where it is no bottleneck."""
    if CAUSES[cause].healthy:
        return "none"
    if share >= thresholds.HIGH_SEVERITY:
        return "high"
    return "medium" if share >= thresholds.MEDIUM_SEVERITY else "low"


def times_rarer(share: float) -> int:
    """How many times more rarely something must happen until its share of the time is not reported any more."""
    bearable, rest = thresholds.REPORTED_SHARE, max(1 - share, thresholds.LEAST_LEFT)
    return max(2, math.ceil(share * (1 - bearable) / (bearable * rest)))


def rarer(case: Case, setting: str, times: int) -> str:
    """The condition for so many times fewer rounds of what the job does in some of them; "" where it is not known.

    Args:
        case: of the job.
        setting: that has the condition as it is.
        times: how many times as rarely.
    """
    return more_rarely(str(case.settings[setting]), times) if setting in case.settings else ""


def by_gain(fixes: tuple[Fix | Advice, ...]) -> tuple[Fix | Advice, ...]:
    """The fixes with those of a predicted speed-up in its order; the others keep their places.

    What has its price stands behind what has none, unless it brings clearly more; a larger batch, which may train
    otherwise, comes last of them.
    """
    known = (fix for fix in fixes if fix.predicted_speedup)
    ranked = iter(sorted(known, key=lambda fix: (_trains_otherwise(fix), -_expected(fix))))
    return tuple(next(ranked) if fix.predicted_speedup else fix for fix in fixes)


def _trains_otherwise(fix: Fix | Advice) -> bool:
    return isinstance(fix, Advice) and fix.message.id in LARGER_BATCH


def _expected(fix: Fix | Advice) -> float:
    """What it may free: of two fixes that free as much at best, the surer one comes first."""
    priced = isinstance(fix, Advice) and fix.price is not None
    worth = expected_freed(fix) * (thresholds.WORTH_OF_PRICED if priced else 1.0)
    return round(worth, 2)  # what differs by less is as good: the first stays first


def _says_something(evidence: Evidence) -> bool:
    """Whether a number is one: less than ticks and samples resolve is what rounding left, and nothing was measured."""
    if not isinstance(evidence.value, (int, float)) or evidence.value == 0:
        return True
    if evidence.unit == "cores":
        return abs(evidence.value) >= thresholds.SHOWN_CORES
    sampled = evidence.unit.startswith("of ") and evidence.probe not in _EXACT
    return not sampled or abs(evidence.value) >= thresholds.SHOWN_FRACTION


def _ranks(case: Case, cause: str) -> tuple[int, ...]:
    """The ranks that a cause lies in; none in a job of one trainer."""
    return case.culprits.get(cause, ()) if len(case.trainers) > 1 else ()


def _places(case: Case, cause: str) -> Iterator[Evidence]:
    """Where most of a cause is, by what different probes saw."""
    alone = case.line_parts.get(cause, {})
    for line, part in _largest(case.lines.get(cause, ())):
        where = say("finding.function", line=line, part=part, alone=alone.get(line))
        yield Evidence(say("finding.where"), where, "", "stacks")
    for name, probe, table in (
        (say("finding.library_call"), "stacks", case.library_calls),
        (say("finding.on_what"), "threads", case.paths),
        (say("finding.operator"), "trace", case.operators),
        (say("finding.kernel"), "trace", case.kernels),
    ):
        for what, part in _largest(table.get(cause, ())):
            yield Evidence(name, say("finding.part", what=re.sub("^file:", "", what), part=part), "", probe)


def _largest(parts: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return [(what, part) for what, part in parts if part >= thresholds.SHOWN_PART][:_SHOWN]
