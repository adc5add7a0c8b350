"""From recordings of one job on several hosts to one diagnosis.

Each host was watched on its own, by its own clock. The recordings are put on the clock of the first one and read over
the time that all of them cover; then a rank that waits is followed to whoever is late at that instant, wherever that
runs. What was measured of a host (its disks, its neighbours, its network) stays with it: rules read the measurements of
the host on which most of the bottleneck lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from perfdoctor.analysis.activity import not_drawn, read_activity
from perfdoctor.analysis.blocks import recorded_blocks
from perfdoctor.analysis.coverage import not_examined, of_stuck, on_hosts, why_no_verdict
from perfdoctor.analysis.from_case import build
from perfdoctor.analysis.from_recording import describe_job, describe_rank, step_summaries
from perfdoctor.analysis.one_job import Part, require_one_size
from perfdoctor.analysis.profiled import level_of, read_profiles
from perfdoctor.analysis.rank_groups import describe_crowd
from perfdoctor.analysis.recorded_case import gather_case
from perfdoctor.analysis.watching_cost import own_cost
from perfdoctor.attribution.account import Account, find_culprits
from perfdoctor.attribution.attribute import attribute
from perfdoctor.attribution.host_clocks import clock_offsets
from perfdoctor.diagnosis import INSIDE, OUTSIDE, Diagnosis, NotExamined, NoVerdict
from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.metrics.series import chart_series
from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.recording.gc_pause import gc_paused
from perfdoctor.recording.other_clock import ClockOffset, on_other_clock
from perfdoctor.recording.reader import Recording
from perfdoctor.rules.case import Case
from perfdoctor.rules.done_alone import find_done_alone
from perfdoctor.rules.look_alikes import with_look_alikes
from perfdoctor.rules.verdict import decide
from perfdoctor.stuck.follow import find_still, find_stuck
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.unseen_ranks import missing_ranks


@dataclass(frozen=True)
class _WatchedHost:
    """A host and what was found on it.

    Attributes:
        name: its own; with a number where several have it.
        accounts: of its trainers.
        case: what rules would read if it were the whole job.
        steps: by process, what is known of its steps.
    """

    name: str
    job: JobTimeline
    offset: ClockOffset
    accounts: list[Account]
    case: Case
    steps: Mapping[int, dict[str, Any]]


@gc_paused()
def examine_hosts(recordings: Sequence[Recording]) -> Diagnosis:
    """Makes the diagnosis of a job that was watched on several hosts.

    Args:
        recordings: one of each host, with the trainers of the job that run there.

    Raises:
        NotOneJobError: they are of jobs of different sizes.
        PerfDoctorError: a rank is in two of them, or there is no time that all of them cover.
    """
    hosts = _read(recordings)
    accounts = [account for host in hosts for account in host.accounts]
    level = INSIDE if all(level_of(host.job) == INSIDE for host in hosts) else OUTSIDE
    leading = _leading(hosts, level)
    case = _join(hosts, leading.case, accounts)
    stuck = find_stuck({host.name: host.job for host in hosts})
    diagnosis = build(case, accounts, level, _why_no_verdict(hosts) if stuck is None else of_stuck(stuck))
    of_each = on_hosts([(host.name, not_examined(host.job, host.case, traced=False)) for host in hosts])
    unseen = (*_ranks_unseen(hosts), *_clocks_unknown(hosts), *of_each, *diagnosis.not_examined)
    straggler = diagnosis.verdict.straggler_rank
    drawn = [read_activity(host.job, host.accounts, straggler) for host in hosts]
    activity = replace(
        drawn[hosts.index(leading)],
        tracks=tuple(track for one in drawn for track in one.tracks),
        steps=tuple(times for one in drawn for times in one.steps),
        workers_left_out=sum(one.workers_left_out for one in drawn),
    )
    ranks = [(host, trainer) for host in hosts for trainer in host.case.trainers]
    described = tuple(
        {**describe_rank(trainer, host.steps.get(trainer.pid, {})), "host": host.name} for host, trainer in ranks
    )
    return replace(
        diagnosis,
        findings=with_look_alikes(diagnosis.findings, case, unseen),
        ranks=described,
        crowd=describe_crowd(described),
        steps=described[0]["steps"] if described else {},
        not_examined=unseen,
        overhead=_cost([own_cost(host.job.recording) for host in hosts]),
        job=_describe(hosts, leading, case),
        series=chart_series(leading.job),
        activity=activity,
        not_drawn=tuple(not_drawn(activity)),
        blocks=recorded_blocks(hosts[0].job, accounts, traced=False),
        stuck=stuck,
    )


def _why_no_verdict(hosts: Sequence[_WatchedHost]) -> NoVerdict | None:
    """Why no bottleneck can be named; None if one can be on any host."""
    missing = [why_no_verdict(host.job, host.accounts, find_still({"": host.job})) for host in hosts]
    return missing[0] if all(missing) else None


def _read(recordings: Sequence[Recording]) -> list[_WatchedHost]:
    """The hosts in order of their lowest ranks, on one clock and over the time that all of them were watched."""
    watched = sorted(map(JobTimeline, recordings), key=_lowest_rank)
    _require_one_job(watched)
    offsets = clock_offsets(watched)
    span = _common_span(watched, offsets)
    jobs = [
        JobTimeline(on_other_clock(job.recording, offset, span)) for job, offset in zip(watched, offsets, strict=True)
    ]
    whole = iter(attribute(*jobs))
    accounts = [list(islice(whole, len(job.processes.trainers))) for job in jobs]
    cases = [
        gather_case(job, some, read_profiles(job.profiles, job.steps)) for job, some in zip(jobs, accounts, strict=True)
    ]
    steps = map(step_summaries, jobs)
    return [_WatchedHost(*of) for of in zip(_names(jobs), jobs, offsets, accounts, cases, steps, strict=True)]


def _common_span(watched: Sequence[JobTimeline], offsets: Sequence[ClockOffset]) -> tuple[int, int]:
    """From when to when all hosts were watched, on the clock of the first one.

    Raises:
        PerfDoctorError: by what is known of their clocks there is no such time, or hardly any.
    """
    spans = {
        job.recording.path: (offset.there(job.span[0]), offset.there(job.span[1]))
        for job, offset in zip(watched, offsets, strict=True)
    }
    late, early = max(spans, key=lambda one: spans[one][0]), min(spans, key=lambda one: spans[one][1])
    begin, end = spans[late][0], spans[early][1]
    if end - begin >= thresholds.WATCHED_TOGETHER_S * NS_PER_S:
        return begin, end
    seen = (
        f"{late} begins {seconds(begin - end):,.1f} s after {early} ends"
        if begin > end
        else f"all hosts were watched together for {seconds(end - begin):.1f} s only"
    )
    raise PerfDoctorError(
        f"By the hosts' clocks {seen}: no wait of a rank can be followed to another host.",
        hint="Record all hosts at once, with srun or the job's own launcher for instance. If these were, keep the "
        "hosts' clocks with NTP or PTP; recordings of other runs belong in folders of their own.",
    )


def _lowest_rank(job: JobTimeline) -> tuple[int, str]:
    return min(job.processes.ranks, default=job.processes.world_size), job.recording.meta.get("host", "")


def _names(jobs: Sequence[JobTimeline]) -> list[str]:
    """What hosts call themselves; containers may all be called alike."""
    names = [job.recording.meta.get("host", "") for job in jobs]
    often = Counter(names)
    return [
        name if often[name] == 1 else f"{name} ({names[: place + 1].count(name)})" for place, name in enumerate(names)
    ]


def _require_one_job(jobs: Sequence[JobTimeline]) -> None:
    """Makes sure that every rank is in one recording, of one job.

    Raises:
        PerfDoctorError: one is in two: which of them counts, or whether there are two jobs, their summaries show.
        NotOneJobError: they are of jobs of different sizes.
    """
    held: dict[int, JobTimeline] = {}
    for job in jobs:
        for rank in job.processes.ranks:
            other = held.setdefault(rank, job)
            if other is not job:
                raise PerfDoctorError(
                    f"Rank {rank} is in both {other.recording.path} and {job.recording.path}.",
                    hint="Name one recording of each host; of a job that was started anew, those of one start.",
                )
    require_one_size(
        Part(str(job.recording.path), job.processes.ranks, job.processes.world_size, job.processes.numbered)
        for job in jobs
    )


# What a case has by cause.
_BY_CAUSE = ("kernels", "operators", "paths", "lines", "below", "library_calls", "python_lines", "called_lines")


def _join(hosts: Sequence[_WatchedHost], leading: Case, accounts: Sequence[Account]) -> Case:
    """What rules read of the whole job: shares and trainers of all hosts, and the rest of the one that matters most."""
    shares = Amounts.summed(account.causes() for account in accounts).fractions()
    owners = _where_most(hosts, shares)

    def of_most(name: str) -> dict[str, Any]:
        """By cause, from the host on which most of it lies."""
        return {cause: found for cause, host in owners.items() if (found := getattr(host.case, name).get(cause))}

    by_cause: dict[str, Any] = {name: of_most(name) for name in _BY_CAUSE}
    return replace(
        leading,
        shares=shares,
        trainers=tuple(trainer for host in hosts for trainer in host.case.trainers),
        culprits=find_culprits(accounts),
        done_alone=find_done_alone(accounts),
        loops=None if any(host.case.loops is None for host in hosts) else of_most("loops"),
        **by_cause,
    )


def _leading(hosts: Sequence[_WatchedHost], level: str) -> _WatchedHost:
    """The host on which most of the cause lies that is to be named; the first one where there is none."""
    accounts = [account for host in hosts for account in host.accounts]
    cause = decide(Amounts.summed(account.causes() for account in accounts).fractions(), accounts, level)
    return _where_most(hosts, [cause])[cause] if isinstance(cause, str) else hosts[0]


def _where_most(hosts: Sequence[_WatchedHost], causes: Iterable[str]) -> dict[str, _WatchedHost]:
    """By cause the host on which most of it lies, that of ranks for which others wait included."""
    by_rank = Amounts.summed(account.by_rank() for host in hosts for account in host.accounts)

    def most(cause: str) -> _WatchedHost:
        return max(hosts, key=lambda host: sum(by_rank[cause, rank] for rank in host.job.processes.ranks))

    return {cause: most(cause) for cause in causes}


def _ranks_unseen(hosts: Sequence[_WatchedHost]) -> list[NotExamined]:
    """Ranks of which nobody looked at the host."""
    ranks = {rank for host in hosts for rank in host.job.processes.ranks}
    return missing_ranks(
        len(ranks), max(host.job.processes.world_size for host in hosts), say("hosts.watch_all"), ranks
    )


def _clocks_unknown(hosts: Sequence[_WatchedHost]) -> Iterator[NotExamined]:
    names = tuple(host.name for host in hosts if host.offset.error_ns is None)
    if names:
        yield NotExamined("clock", say("hosts.clock_unknown", names=names), say("hosts.keep_clocks"))


def _cost(costs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of the host on which it was highest; ticks of all."""

    def known(name: str) -> list[Any]:
        return [cost[name] for cost in costs if cost.get(name) is not None]

    return {
        "cpu_cores": max(known("cpu_cores"), default=None),
        "memory_bytes": max(known("memory_bytes"), default=None),
        "ticks": sum(known("ticks")),
        "late_ticks": sum(known("late_ticks")),
    }


def _describe(hosts: Sequence[_WatchedHost], leading: _WatchedHost, case: Case) -> dict[str, Any]:
    """The job as the host describes it that matters most, and all of its hosts."""
    return {
        **describe_job(leading.job, case),
        "processes": sum(len(host.job.processes.by_pid) for host in hosts),
        "trainers": len(case.trainers),
        "host": leading.name,
        "hosts": [
            {
                "name": host.name,
                "ranks": host.job.processes.ranks,
                "clock_ahead_s": seconds(host.offset.ahead_ns),
                "clock_error_s": None if host.offset.error_ns is None else seconds(host.offset.error_ns),
                "clock_drift": host.offset.drift,
            }
            for host in hosts
        ],
    }
