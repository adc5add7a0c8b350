"""What a report says, ready to be laid out: the console and the page differ in looks only.

All text here is clean (see ``perfdoctor.reports.text``) but not escaped: markup is the layout's business.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perfdoctor.causes import CAUSES, UNATTRIBUTED
from perfdoctor.diagnosis import CauseShare, Diagnosis, Verdict
from perfdoctor.reports.cards import Card, ShortPaths, card, texts
from perfdoctor.reports.text import clean, duration, fact, number, percent, sentence, speedup
from perfdoctor.reports.wording import cause_title, label, worded

Rows = tuple[tuple[str, str], ...]

# Names of the recorder's that say little to a reader.
_COSTS = {
    "ticks": "samples of the job",
    "late_ticks": "late samples",
    "trace_way": "traced by",
    "trace_s": "then traced_s",
    "trace_stopped_s": "stopped for it_s",
    "trace_held_s": "waited for the profiler_s",
}
_FACTS = {"root_pid": "top process", "stopped": "watching ended"}
_ENDS = {"duration": "when its time was up", "job ended": "with the job", "interrupted": "when it was interrupted"}
# Environment variables that torchrun sets for itself, and file systems without files on a disk or a server.
_LAUNCHERS = ("env.TORCHELASTIC_", "env.ROLE_", "env.GROUP_", "env.TORCH_NCCL_ASYNC_ERROR_HANDLING")
_NO_DISK = ("tmpfs", "devtmpfs", "ramfs", "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue")


def step_rows(steps: Mapping[str, Any]) -> Rows:
    """How long a step takes, and what each phase takes of it, longest first."""
    if "phases" not in steps:
        traced = steps.get("profiled", {})
        return _whole_steps(traced, label("steps_traced")) if "phases" in traced else _rows(steps)
    rows = list(_whole_steps(steps, label("steps_observed")))
    if apart := steps.get("serialised"):
        hidden = label("in_sum", time=duration(apart["sum_s"]), steps=number(apart["count"]))
        overlap = label("overlaps", share=percent(apart["overlap"]))
        rows.append((label("parts_by_themselves"), label("listed", items=(hidden, overlap))))
    if steps.get("collector_s"):
        rows.append((label("of_that_gc"), label("a_step", time=duration(steps["collector_s"]))))
    if steps.get("outside_s"):
        rows.append((label("between_steps"), duration(steps["outside_s"])))
    for what, name in (("trial", label("trial_batch")), ("profiled", label("profiled"))):
        if made := steps.get(what):
            rows.append((name, label("over_steps", time=duration(made["median_s"]), steps=number(made["count"]))))
    return tuple(rows)


def _whole_steps(steps: Mapping[str, Any], title: str) -> Rows:
    """Steps, their phases, and in which functions of the job's own they pass, as far as that is known."""
    median, mean, slow = (duration(steps[name]) for name in ("median_s", "mean_s", "p95_s"))
    rows = [(title, number(steps["count"]))]
    rows.append((label("time_per_step"), label("step_times", median=median, mean=mean, slow=slow)))
    apart, device = steps.get("serialised"), steps.get("device")
    alone = {name: spent["median_s"] for name, spent in apart["phases"].items()} if apart else {}
    there = device["phases"] if device else {}
    for phase, spent in steps["phases"].items():
        told = [label("sequence", items=(label("a_step", time=duration(spent["mean_s"])), percent(spent["share"])))]
        told += [label("on_device", time=duration(there[phase]))] if phase in there else []
        told += [label("by_itself", time=duration(alone[phase]))] if phase in alone else []
        rows.append((sentence(clean(worded(phase))), label("listed", items=tuple(told))))
    for place, one in enumerate(steps.get("lines", ())):
        name = "" if place else label("in_functions")
        rows.append((name, label("of_a_step", share=percent(one["share"]), line=clean(one["line"]))))
    return tuple(rows)


def job_rows(job: Mapping[str, Any]) -> Rows:
    """What was watched but its settings, without what says nothing to a reader; the JSON report has it all."""
    shown = {name: value for name, value in job.items() if name != "settings"}
    if shown.get("root_pid") == shown.get("pid"):
        shown.pop("root_pid", None)
    if (stopped := shown.pop("stopped", None)) is not None:
        shown["stopped"] = worded(_ENDS.get(str(stopped), str(stopped)))
    return _rows(_renamed(shown, _FACTS))


def setting_rows(job: Mapping[str, Any]) -> Rows:
    """The job's settings that matter, and the hardware that it has."""
    settings = job.get("settings")
    if not isinstance(settings, Mapping):
        return ()
    told = {name: value for name, value in settings.items() if _tells(str(name), str(value))}
    return tuple((clean(str(name)), fact("", value)[1]) for name, value in told.items())


def _tells(setting: str, value: str) -> bool:
    """Whether a setting is of the job's own making: not what a launcher sets, nor a mount without files on a disk."""
    return not setting.startswith(_LAUNCHERS) and not (setting.startswith("mount.") and value in _NO_DISK)


def _renamed(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in table.items()}


def _rows(table: Mapping[str, Any]) -> Rows:
    return tuple(fact(name, value) for name, value in table.items())


def cost_rows(overhead: Mapping[str, Any]) -> Rows:
    """What the diagnosis cost."""
    return _rows(_renamed(overhead, _COSTS))


# Causes below this share of wall time go into one line of the breakdown; the JSON report has them all.
SMALL_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class Part:
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
        tone: ``bottleneck``, ``healthy`` or ``unknown``.
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
    settings: Rows

    @property
    def job_in_short(self) -> Rows:
        """What was watched, with all settings in one row."""
        if not self.settings:
            return self.job
        return (*self.job, (label("settings"), ", ".join(f"{name} {value}" for name, value in self.settings)))


def outline(diagnosis: Diagnosis) -> Outline:
    """What a report of this diagnosis says."""
    verdict = diagnosis.verdict
    ranks = diagnosis.ranks if len(diagnosis.ranks) > 1 else ()
    paths = ShortPaths(texts(diagnosis))
    return Outline(
        version=clean(diagnosis.version),
        bottleneck=verdict.bottleneck or "",
        tone=_tone(verdict),
        claim=_claim(verdict),
        headline=_headline(verdict),
        summary=paths.shorten(clean(verdict.summary)),
        figures=_figures(verdict),
        basis=_basis(verdict),
        straggler=_straggler(verdict),
        breakdown=_parts(diagnosis.breakdown if _is_known(diagnosis) else ()),
        ranks=tuple(_rank(rank, verdict) for rank in ranks),
        cards=tuple(card(finding, paths, said=verdict.summary) for finding in diagnosis.findings),
        not_examined=tuple(
            (clean(item.probe), clean(worded(item.reason)), clean(worded(item.enable)))
            for item in diagnosis.not_examined
        ),
        overhead=cost_rows(diagnosis.overhead),
        steps=_steps(diagnosis),
        job=job_rows(diagnosis.job),
        settings=setting_rows(diagnosis.job),
    )


def _claim(verdict: Verdict) -> str:
    """The bottleneck and its cause in a few words."""
    if verdict.bottleneck is None or verdict.cause is None:
        return label("no_bottleneck_named")
    if CAUSES[verdict.cause].healthy:
        return label("unequal_ranks" if _is_unequal(verdict) else "no_bottleneck")
    return label("bottleneck", resource=verdict.bottleneck, title=cause_title(verdict.cause))


def _headline(verdict: Verdict) -> str:
    """One line with bottleneck, cause, share and predicted speed-up."""
    said, share = _claim(verdict), percent(verdict.share)
    if verdict.bottleneck is None or verdict.cause is None:
        return said
    # What a fix does not speed up, the job's start for instance, says nothing of a fix.
    gain = speedup(verdict.predicted_speedup) if verdict.predicted_speedup > 1 else ""
    if CAUSES[verdict.cause].healthy:
        title = cause_title(verdict.cause)
        return label("headline_healthy", claim=said, share=share, title=title, speedup=gain)
    return label("headline", claim=said, share=share, speedup=gain)


def _tone(verdict: Verdict) -> str:
    """``bottleneck``, ``healthy`` or ``unknown``."""
    if verdict.bottleneck is None or verdict.cause is None:
        return "unknown"
    return "healthy" if CAUSES[verdict.cause].healthy and not _is_unequal(verdict) else "bottleneck"


def _is_unequal(verdict: Verdict) -> bool:
    """Whether ranks wait for others that do more of what is no bottleneck in itself."""
    return verdict.straggler_rank is not None or verdict.predicted_speedup > 1


def _figures(verdict: Verdict) -> Rows:
    """The verdict's numbers, as label and text."""
    if verdict.cause is None or verdict.bottleneck is None:
        return ()
    rows = [(label("share_of_time"), percent(verdict.share))]
    if verdict.predicted_speedup > 1:
        rows.append((label("predicted_speedup"), speedup(verdict.predicted_speedup)))
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


def _is_known(diagnosis: Diagnosis) -> bool:
    """Whether anything is known of where the time goes."""
    return bool(diagnosis.ranks) or any(line.cause != UNATTRIBUTED for line in diagnosis.breakdown)


def _kind(cause: str) -> str:
    return "rest" if cause == UNATTRIBUTED else "healthy" if CAUSES[cause].healthy else "bottleneck"


def _parts(breakdown: Iterable[CauseShare]) -> tuple[Part, ...]:
    """The parts of a bar, largest first, small ones together at the end."""
    lines = sorted((line for line in breakdown if line.share > 0), key=lambda line: -line.share)
    small = [line for line in lines if line.share < SMALL_SHARE]
    if len(small) < 2:
        small = []
    parts = [
        Part(
            line.cause,
            sentence(cause_title(line.cause)),
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
        parts.append(Part("", title, share, percent(share), "small"))
    return tuple(parts)


def _rank(rank: Mapping[str, Any], verdict: Verdict) -> RankBar:
    lines = [CauseShare(line["cause"], line["share"]) for line in rank["breakdown"]]
    return RankBar(
        name=sentence(label("rank", rank=rank["rank"])),
        detail=_rank_detail(rank),
        straggler=rank["rank"] == verdict.straggler_rank,
        parts=_parts(lines),
    )


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
    return label("pid_and_workers", pid=rank["pid"], workers=rank["workers"])
