"""From a recording to a diagnosis, by way of the case that rules read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfdoctor.analysis.activity import not_drawn, read_activity
from perfdoctor.analysis.blocks import recorded_blocks
from perfdoctor.analysis.build import build, describe_trainer
from perfdoctor.analysis.coverage import not_examined, of_stuck, why_no_verdict
from perfdoctor.analysis.method import how_made
from perfdoctor.analysis.own_code import (
    called_by_job,
    done_afterwards,
    drawn_before,
    in_own_code,
    located,
    outside_torch,
    parts_by_function,
    parts_by_loop,
)
from perfdoctor.analysis.profiled import Profiled, account_for
from perfdoctor.analysis.same_batch_trial import judge, read_trial
from perfdoctor.attribution.account import Account, find_culprits
from perfdoctor.causes import GARBAGE_COLLECTION, INPUT_PREPROCESSING, PYTHON_OVERHEAD
from perfdoctor.diagnosis import TRACED, Diagnosis, Evidence
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.metrics.arithmetic import fresh_memory, in_double
from perfdoctor.metrics.helper_processes import helpers_at_once
from perfdoctor.metrics.measure import measure
from perfdoctor.metrics.names import Measured, Numbers, of_process, put
from perfdoctor.metrics.neighbours import find_neighbours
from perfdoctor.metrics.overlap import measure_longer, measure_overlap
from perfdoctor.metrics.overlap import summary as overlap_summary
from perfdoctor.metrics.own_code import below, by_function, named_calls, without_torch
from perfdoctor.metrics.own_source import part_in_call, unused_pass
from perfdoctor.metrics.series import chart_series
from perfdoctor.metrics.settings import read_code_settings, read_settings
from perfdoctor.recording.clock import seconds
from perfdoctor.recording.collector import collector_paused
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Event, ProcessSeen, TraceCost
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.done_alone import find_done_alone
from perfdoctor.rules.look_alikes import with_look_alikes
from perfdoctor.stuck.follow import find_still, surely_stuck
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import HOOK
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process, counted_ranks, missing_ranks
from perfdoctor.timeline.readings import Readings


@collector_paused()
def examine(recording: Recording) -> Diagnosis:
    """Makes the diagnosis.

    Args:
        recording: what was seen; may have been cut short by a crash.
    """
    return examine_job(JobTimeline(recording))


def examine_job(job: JobTimeline, *, drawn: bool = True) -> Diagnosis:
    """Makes the diagnosis of a recording whose timeline is at hand.

    Args:
        job: what was seen.
        drawn: with what reports draw, and what other runs are compared with; a live view does without.
    """
    level, accounts, profiled = account_for(job)
    steps = step_summaries(job)
    trial = read_trial(job.trials, steps)
    case = gather_case(job, accounts, profiled)
    still = find_still({"": job})
    stuck = surely_stuck(still, {"": job})
    missing = why_no_verdict(job, accounts, still) if stuck is None else of_stuck(stuck)
    diagnosis = build(case, accounts, level, missing)
    unseen = (*not_examined(job, case, traced=level == TRACED), *profiled.not_examined, *diagnosis.not_examined)
    if accounts and stuck is None:
        numbers = job.processes.ranks
        absent = missing_ranks(len(numbers), job.processes.world_size, say("hosts.watch_all"), numbers)
        unseen = (*counted_ranks(len(numbers), numbered=job.processes.numbered), *absent, *unseen)
    ranks = tuple(
        describe_rank(trainer, steps.get(trainer.pid, {}), profiled.steps(trainer.pid)) for trainer in case.trainers
    )
    found = replace(
        diagnosis,
        verdict=judge(diagnosis.verdict, trial),
        findings=in_own_code(with_look_alikes(diagnosis.findings, case, unseen), job, case.loop),
        ranks=ranks,
        steps={**ranks[0]["steps"], **({"trial": trial.as_json()} if trial else {})} if ranks else {},
        not_examined=unseen,
        overhead=own_cost(job.recording),
        job={**describe_job(job, case), **_followed(accounts)},
        stuck=stuck,
    )
    if not drawn:
        return found
    activity = read_activity(job, accounts, diagnosis.verdict.straggler_rank)
    traced_ns = profiled.lengths_ns(accounts[0].trainer.pid) if accounts else ()
    return replace(
        found,
        series=chart_series(job),
        activity=activity,
        not_drawn=tuple(not_drawn(activity)),
        method=tuple(how_made(job, accounts, found.verdict)),
        blocks=recorded_blocks(job, accounts, traced=level == TRACED, traced_ns=traced_ns),
    )


def step_summaries(job: JobTimeline) -> dict[int, dict[str, Any]]:
    """By process, what is known of its steps: as marked, or else as counted."""
    counted = {pid: one.summary() for pid, one in job.counted.items()}
    marked = {pid: {**steps.summary(), **overlap_summary(steps)} for pid, steps in job.steps.items()}
    return {**counted, **{pid: steps for pid, steps in marked.items() if steps}}


def describe_rank(
    trainer: Trainer, steps: Mapping[str, Any], profiled: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A rank as reports have it, with its steps: those that it marked or that were counted, and those profiled."""
    return {
        "steps": {**steps, **({"profiled": profiled} if profiled else {})},
        "rank": trainer.rank,
        "pid": trainer.pid,
        "workers": trainer.workers,
        "breakdown": [{"cause": cause, "share": share} for cause, share in trainer.shares.items()],
        "phases": dict(trainer.phases),
        "waits_for": {str(rank): share for rank, share in trainer.waited_for.items()},
    }


def describe_job(job: JobTimeline, case: Case) -> dict[str, Any]:
    """What was watched, when, and how it is set up."""
    root = next(iter(job.recording.rows(ProcessSeen)), None)
    stopped = [event.text for event in job.recording.rows(Event) if event.kind == "stopped"]
    return {
        "pid": int(job.recording.meta.get("asked_pid", 0)),
        "root_pid": None if root is None else root.pid,
        "command": "" if root is None else root.command,
        "host": job.recording.meta.get("host", ""),
        "started": job.recording.meta.get("started", ""),
        "watched_seconds": round(case.watched_s, 3),
        "stopped": stopped[-1] if stopped else "recorder was killed",
        "processes": len(job.processes.by_pid),
        "trainers": len(job.processes.trainers),
        "world_size": job.processes.world_size,
        **_versions(job),
        **_neighbours(case),
        "settings": dict(case.settings),
    }


def _followed(accounts: Sequence[Account]) -> dict[str, int]:
    """How many samples of trainers there are and how many were followed, where these stand for all."""
    seen, followed = sum(account.sampled for account in accounts), sum(len(account.samples) for account in accounts)
    return {"samples": seen, "followed_samples": followed} if followed < seen else {}


def _versions(job: JobTimeline) -> dict[str, str]:
    """Of Python and torch, in the first trainer of which they were read."""
    found: dict[str, str] = {}
    for trainer in job.processes.trainers:
        for what in ("python", "torch"):
            version = job.recording.facts.get((f"pid:{trainer.pid}", f"{what}_version"))
            if version is not None:
                found.setdefault(what, version)
    return found


def _neighbours(case: Case) -> dict[str, float]:
    """How many cores processes outside the job kept busy, where that is known."""
    cores = case.number("neighbour_cores")
    return {} if cores is None else {"neighbour_cores": round(cores, 3)}


def own_cost(recording: Recording) -> dict[str, Any]:
    """CPU and memory of perfdoctor while it watched; values are None where the recorder was killed before it could say.

    Returns:
        ``cpu_cores`` (mean cores used; py-spy, a live view and an exporter included), ``memory_bytes`` (peak),
        ``ticks`` and ``late_ticks``; and what ``_cost_of_traces`` returns.
    """

    def read(name: str) -> tuple[list[int], list[float]]:
        return recording.series.get(("perfdoctor", name), ([], []))

    def last(name: str) -> float | None:
        values = read(name)[1]
        return values[-1] if values else None

    used = 0.0
    span = 0.0
    for name in ("own_cpu_seconds_total", "helpers_cpu_seconds_total"):
        times, values = read(name)
        if len(values) >= 2:
            used += values[-1] - values[0]
            span = seconds(times[-1] - times[0])
    used += sum(last(f"{beside}_cpu_seconds_total") or 0.0 for beside in ("view", "exporter"))
    return {
        "cpu_cores": used / span if span > 0 else None,
        "memory_bytes": last("memory_peak_bytes"),
        "ticks": last("ticks_total"),
        "late_ticks": last("late_ticks_total"),
        **_cost_of_traces(recording.rows(TraceCost)),
    }


def _cost_of_traces(costs: Sequence[TraceCost]) -> dict[str, Any]:
    """What it cost the job to be traced: the largest of the ranks; empty if it was not.

    Returns:
        ``trace_way``; ``trace_s`` (how long was traced); ``trace_stopped_s`` and ``trace_held_s`` (for how long the
        training stood still so that it could be entered from outside, and waited for the profiler).
    """
    if not costs:
        return {}
    stopped = max(cost.stopped_ns for cost in costs)
    return {
        "trace_way": ", ".join(sorted({cost.way for cost in costs})),
        "trace_s": seconds(max(cost.traced_ns for cost in costs)),
        **({"trace_stopped_s": seconds(stopped)} if stopped else {}),
        "trace_held_s": seconds(max(cost.held_ns or 0 for cost in costs)),
    }


# So many files or devices of a cause are reported.
_SHOWN = 5


def gather_case(job: JobTimeline, accounts: list[Account], profiled: Profiled) -> Case:
    """Everything that rules may read."""
    together = Amounts.summed(account.causes() for account in accounts)
    pids = [
        (account.trainer.pid, [worker.pid for worker in job.processes.workers_of(account.trainer.pid)])
        for account in accounts
    ]
    seen, accounted = measure(job.recording, job.threads, pids), measure_accounts(accounts)
    marked = [account for account in accounts if account.trainer.pid in job.steps]
    steps = {account.rank: job.steps[account.trainer.pid] for account in marked}
    longer = measure_longer(steps)
    own = {cause: located(accounts, cause, together[cause]) for cause in together}
    called = {cause: called_by_job(accounts, cause, lines) for cause, lines in own.items()}
    under = job.stacks.below_lines
    double = in_double(job)
    put(accounted.job, "double_precision", double and double.part)
    put(accounted.job, "double_unfolding", double and double.unfolding)
    put(accounted.job, "fresh_memory", fresh_memory(job))
    unused = unused_pass(job.source_calls)
    put(accounted.job, "unused_pass", None if unused is None else part_in_call(job.stacks, unused))
    put(accounted.job, "helpers_at_once", helpers_at_once(job))
    put(accounted.job, "drawn_before", drawn_before(job, own.get(INPUT_PREPROCESSING, {})))
    return Case(
        shares=together.fractions(),
        trainers=tuple(_trainer(job, account, [seen, accounted], longer) for account in accounts),
        culprits=find_culprits(accounts),
        numbers={
            **seen.job,
            **accounted.job,
            **profiled.numbers,
            **measure_overlap(steps),
        },
        kernels=profiled.kernels,
        operators=profiled.operators,
        settings={**read_settings(job.recording, pids), **read_code_settings(job)},
        paths={cause: _top([account.targets.get(cause, Amounts()) for account in accounts]) for cause in together},
        lines={
            # Functions that brought a cause about on a device: no sample shows from where its work was launched.
            **(profiled.lines if profiled.covers(accounts) else {}),
            **{cause: by_function(lines) for cause, lines in own.items() if lines},
        },
        below={cause: below(lines, under) for cause, lines in own.items()},
        library_calls={cause: named_calls(lines, job.stacks.calls_below_lines) for cause, lines in own.items()},
        python_lines={cause: by_function(without_torch(lines, under)) for cause, lines in own.items()},
        called_lines={cause: parts_by_function(called[cause], lines.total) for cause, lines in own.items()},
        loops=parts_by_loop(job, called, own),
        done_alone=find_done_alone(accounts),
        done_afterwards=done_afterwards(accounts),
        hooks=tuple(dict.fromkeys(one.line for one in job.stacks.locations if one.detail == HOOK)),
        outside_torch=outside_torch(accounts),
        neighbours=find_neighbours(Readings(job.recording)),
        watched_s=seconds(job.recording.end_ns - job.recording.start_ns),
    )


def measure_accounts(accounts: Sequence[Account]) -> Measured:
    """What main threads run around the arithmetic, and how long they prepare batches or draw indices themselves."""
    numbers: Numbers = {}
    put(numbers, "interpreter_code", _of_overhead(accounts, [account.interpreter for account in accounts]))
    put(numbers, "library_code", _of_overhead(accounts, [account.libraries for account in accounts]) or None)
    put(numbers, "collected_by_hand", _collected_by_hand(accounts))
    by_trainer: dict[int, Numbers] = {}
    for account in accounts:
        pid, watched = account.trainer.pid, account.seconds
        own = by_trainer.setdefault(pid, {})
        if watched:
            for activity, seconds_of in {"fetching": 0.0, **account.activities.seconds}.items():
                put(own, f"own_{activity}", seconds_of / watched, of_process(pid))
    return Measured(numbers, by_trainer)


def _collected_by_hand(accounts: Sequence[Account]) -> float | None:
    """Of garbage collection the largest fraction at a line that does nothing else; None where no line of it is known.

    Python collects where objects are made, at lines that have work of their own; only a call does nothing but collect.
    """
    seen = Amounts.summed(lines for account in accounts for lines in account.lines.values())
    collecting = Amounts.summed(account.lines.get(GARBAGE_COLLECTION, {}) for account in accounts)
    by_hand = [amount for line, amount in collecting.items() if amount >= thresholds.ONLY_COLLECTS * seen[line]]
    return max(by_hand, default=0.0) / collecting.total if collecting.total else None


def _of_overhead(accounts: Sequence[Account], parts: Sequence[float | None]) -> float | None:
    """The mean of parts of the trainers' Python overhead, by how long it takes in each; None where none is known."""
    overhead = [sum(causes[PYTHON_OVERHEAD] for causes in account.own.values()) for account in accounts]
    known = [(seconds, part) for seconds, part in zip(overhead, parts, strict=True) if part is not None]
    total = sum(seconds for seconds, _ in known)
    return sum(seconds * part for seconds, part in known) / total if total else None


def _trainer(
    job: JobTimeline, account: Account, measured: Sequence[Measured], longer: Mapping[int, Evidence]
) -> Trainer:
    rank, pid = account.rank, account.trainer.pid
    workers = job.processes.workers_of(pid)
    numbers = {name: number for one in measured for name, number in one.trainers.get(pid, {}).items()}
    if rank in longer:
        numbers["longer"] = longer[rank]
    return replace(
        describe_trainer(account, account.phases.fractions()),
        worker_pids=tuple(worker.pid for worker in workers),
        workers=_at_a_time(job, workers),
        helpers=_at_a_time(job, job.processes.helpers_of(pid)),
        numbers=numbers,
    )


def _at_a_time(job: JobTimeline, processes: Sequence[Process]) -> int:
    """How many of some processes were alive at a time, as a median."""
    start, end = job.recording.start_ns, job.recording.end_ns
    moments = [start + (end - start) * step // 50 for step in range(1, 50)]
    return sorted(sum(process.alive_at(time) for process in processes) for time in moments)[len(moments) // 2]


def _top(parts: list[Amounts[str]]) -> tuple[tuple[str, float], ...]:
    return tuple(list(Amounts.summed(parts).fractions().items())[:_SHOWN])
