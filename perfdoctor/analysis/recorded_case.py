"""The case that rules read, of a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfdoctor.analysis.from_case import describe_trainer
from perfdoctor.analysis.own_lines import (
    called_by_job,
    done_afterwards,
    drawn_before,
    located,
    only_read_out,
    outside_torch,
    parts_by_function,
    parts_by_loop,
)
from perfdoctor.analysis.profiled import Profiled
from perfdoctor.attribution.account import Account, find_culprits
from perfdoctor.attribution.multiplying import find_multiplying
from perfdoctor.attribution.share import SLEEP
from perfdoctor.causes import CONTENTION, GARBAGE_COLLECTION, INPUT_PREPROCESSING, PYTHON_OVERHEAD, WORKER_STARTUP
from perfdoctor.diagnosis import Evidence
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import COMPATIBLE, REPRODUCIBLE
from perfdoctor.metrics.arithmetic import (
    fresh_memory,
    has_compatible_blas,
    in_double,
    in_long_ffts,
    in_recurrent,
    reducing_by_number,
    without_onednn,
)
from perfdoctor.metrics.by_function import below, by_function, named_calls, without_torch
from perfdoctor.metrics.detours_in_stacks import find_in_stacks
from perfdoctor.metrics.exchanges import read_exchanges, sending_buffers
from perfdoctor.metrics.filled_memory import filled_at, filled_memory
from perfdoctor.metrics.helper_processes import helpers_at_once
from perfdoctor.metrics.loaders import first_batches, taken_by_file
from perfdoctor.metrics.machine_code import code_of_trainers
from perfdoctor.metrics.measure import measure
from perfdoctor.metrics.names import Measured, Numbers, Trainers, of_process, put
from perfdoctor.metrics.neighbours import find_busy_helper, find_neighbours
from perfdoctor.metrics.overlap import measure_longer, measure_overlap
from perfdoctor.metrics.own_detours import CostlyDetour, find_costly
from perfdoctor.metrics.own_source import part_in_call, unused_pass
from perfdoctor.metrics.settings import read_code_settings, read_settings, read_versions
from perfdoctor.metrics.tracers import find_tracer, stopped_by, tracing_memory
from perfdoctor.metrics.unchanged import find_unchanged
from perfdoctor.metrics.uncompiled import find_uncompiled
from perfdoctor.recording.clock import seconds
from perfdoctor.recording.own_source import SourceDetour, SourceGiven, SourceUnchanged
from perfdoctor.recording.schema import LoaderSample
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.done_alone import find_done_alone
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import HOOK
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.readings import Readings

# So many files or devices of a cause are reported.
_SHOWN = 5


def gather_case(job: JobTimeline, accounts: list[Account], profiled: Profiled) -> Case:
    """Everything that rules may read."""
    together, readings = Amounts.summed(account.causes() for account in accounts), Readings(job.recording)
    pids = [
        (account.trainer.pid, [worker.pid for worker in job.processes.workers_of(account.trainer.pid)])
        for account in accounts
    ]
    trainers = [pid for pid, _ in pids]
    seen, accounted = measure(job.recording, job.threads, pids), measure_accounts(accounts)
    marked = [account for account in accounts if account.trainer.pid in job.steps]
    steps = {account.rank: job.steps[account.trainer.pid] for account in marked}
    longer = measure_longer(steps)
    own = {cause: located(accounts, cause, together[cause]) for cause in together}
    called = {cause: called_by_job(accounts, cause, lines) for cause, lines in own.items()}
    under = job.stacks.below_lines
    afterwards = done_afterwards(accounts)
    places = {**_measure_computing(accounted.job, job), **_measure_own_code(accounted.job, job, trainers)}
    found = read_settings(job.recording, job.threads, job.affinity, pids)
    put(accounted.job, "helpers_at_once", helpers_at_once(job))
    put(accounted.job, "taken_by_file", taken_by_file(job.stacks))
    put(accounted.job, "first_batches", first_batches(job.recording.rows(LoaderSample)))
    multiplying = find_multiplying(job)
    put(accounted.job, "multiplying", multiplying and multiplying.part)
    put(accounted.job, "drawn_before", drawn_before(job, own.get(INPUT_PREPROCESSING, {})))
    return Case(
        shares=together.fractions(),
        trainers=tuple(_trainer(job, account, [seen, accounted], longer) for account in accounts),
        culprits=find_culprits(accounts),
        numbers={**seen.job, **accounted.job, **profiled.numbers, **measure_overlap(steps)},
        kernels=profiled.kernels,
        operators=profiled.operators,
        settings={**found, **read_code_settings(job), **places},
        paths={cause: _top([account.targets.get(cause, Amounts()) for account in accounts]) for cause in together},
        lines={
            # Functions that brought a cause about on a device: no sample shows from where its work was launched.
            **(profiled.lines if profiled.covers(accounts) else {}),
            **{cause: by_function(lines) for cause, lines in own.items() if lines},
        },
        line_parts={cause: lines.fractions() for cause, lines in own.items()},
        below={cause: below(lines, under) for cause, lines in own.items()},
        library_calls={cause: named_calls(lines, job.stacks.calls_below_lines) for cause, lines in own.items()},
        python_lines={cause: by_function(without_torch(lines, under)) for cause, lines in own.items()},
        called_lines={cause: parts_by_function(called[cause], lines.total) for cause, lines in own.items()},
        loops=parts_by_loop(job, accounts, called, own),
        done_alone=find_done_alone(accounts),
        done_afterwards=afterwards,
        read_outs=only_read_out(job, afterwards),
        hooks=tuple(dict.fromkeys(one.line for one in job.stacks.locations if one.detail == HOOK)),
        whole_tensors=() if multiplying is None else multiplying.others,
        outside_torch=outside_torch(accounts),
        detours=_find_detours(job, pids, own, 1 - together.fractions().get(CONTENTION, 0.0)),
        exchanged_besides=read_exchanges(job.stacks, trainers).besides_passes(),
        neighbours=find_neighbours(readings),
        busy_helper=find_busy_helper(job, readings),
        versions=read_versions(job.recording, trainers),
        code_seen=len(job.code) > 0,
        watched_s=seconds(job.recording.end_ns - job.recording.start_ns),
        once=_first_start(job, accounts),
    )


def _find_detours(
    job: JobTimeline, pids: Trainers, own: Mapping[str, Mapping[str, float]], at_work: float
) -> tuple[CostlyDetour, ...]:
    """What the job does again or for nothing, by its own source and by torch's frames, the costliest first."""
    written = job.recording.rows(SourceDetour)
    at_lines = find_costly(job.stacks, pids, written, own, at_work)
    trainers, rows = [pid for pid, _ in pids], job.recording.rows
    seen = find_in_stacks(job.stacks, trainers, job.source_loops, own, at_work, written)
    unchanged = find_unchanged(job.stacks, trainers, rows(SourceUnchanged), rows(SourceGiven), own, at_work)
    return tuple(sorted((*at_lines, *seen, *unchanged), key=lambda one: -one.share))


def _measure_own_code(numbers: Numbers, job: JobTimeline, trainers: list[int]) -> dict[str, str]:
    """What passes take whose gradients nobody uses, a trace function, a tracer, what torch.compile leaves out, buffers.

    Returns:
        The settings that say where.
    """
    unused, tracer = unused_pass(job.source_calls), find_tracer(job.stacks, trainers)
    uncompiled, stopped = find_uncompiled(job.stacks, trainers), stopped_by(job)
    put(numbers, "sending_buffers", sending_buffers(job.stacks, trainers))
    put(numbers, "unused_pass", None if unused is None else part_in_call(job.stacks, trainers, unused))
    put(numbers, "tracing", None if tracer is None else tracer.part)
    put(numbers, "stopped", None if stopped is None else stopped.part)
    put(numbers, "uncompiled", None if uncompiled is None else uncompiled.part)
    places = {
        "traced_by": tracer and tracer.place,
        "stopped_by": stopped and stopped.by,
        "uncompiled_at": uncompiled and uncompiled.place,
    }
    return {name: place for name, place in places.items() if place is not None}


def _measure_computing(numbers: Numbers, job: JobTimeline) -> Mapping[str, str]:
    """What the trainers compute, by their machine code, by their page faults and by their stacks.

    Returns:
        The settings that say where they fill memory, and how MKL was told to compute.
    """
    code = code_of_trainers(job)
    double, filled = in_double(code), filled_memory(job, code)
    put(numbers, "double_precision", double and double.part)
    put(numbers, "double_unfolding", double and double.unfolding)
    put(numbers, "without_onednn", without_onednn(code) or None)
    put(numbers, "reducing_by_number", reducing_by_number(code) or None)
    put(numbers, "long_ffts", in_long_ffts(code) or None)
    put(numbers, "tracing_memory", tracing_memory(code))
    put(numbers, "fresh_memory", fresh_memory(job))
    if filled is not None:
        put(numbers, "gradients_of_zeros", filled.gradients or None)
        put(numbers, "filling", filled.elsewhere or None)
        put(numbers, "clearing", filled.cleared or None)
    put(numbers, "in_recurrent", in_recurrent(job))
    told = {f"env.{REPRODUCIBLE}": COMPATIBLE} if has_compatible_blas(code) else {}
    return {**filled_at(job, filled), **told}


def _first_start(job: JobTimeline, accounts: Sequence[Account]) -> dict[str, float]:
    """How long workers were started for, in seconds, where none has ended: only they that end start anew."""
    pids, seen = [account.trainer.pid for account in accounts], job.recording.processes
    pools = [one for pid in pids for one in job.processes.helpers_of(pid) if seen[one.pid].forked]  # and no programs
    workers = [*pools, *(one for pid in pids for one in job.processes.workers_of(pid))]
    spent = sum(account.causes()[WORKER_STARTUP] for account in accounts) / max(1, len(accounts))
    return {} if not spent or any(worker.ended_ns is not None for worker in workers) else {WORKER_STARTUP: spent}


def measure_accounts(accounts: Sequence[Account]) -> Measured:
    """What main threads run around the arithmetic, and how long they prepare batches or draw indices themselves."""
    numbers: Numbers = {}
    put(numbers, "interpreter_code", _of_overhead(accounts, [account.interpreter for account in accounts]))
    put(numbers, "library_code", _of_overhead(accounts, [account.libraries for account in accounts]) or None)
    put(numbers, "collected_by_hand", _collected_by_hand(accounts))
    put(numbers, "input_asleep", _input_asleep(accounts))
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


def _input_asleep(accounts: Sequence[Account]) -> float | None:
    """Of waiting for the input, the fraction in which whoever makes it sleeps; None where nobody does."""
    asleep = sum(account.targets.get(INPUT_PREPROCESSING, Amounts())[SLEEP] for account in accounts)
    waited = sum(causes[INPUT_PREPROCESSING] for account in accounts for causes in account.own.values())
    return min(1.0, asleep / waited) if asleep and waited else None


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
        workers=_median_alive(job, workers),
        helpers=_median_alive(job, job.processes.helpers_of(pid)),
        numbers=numbers,
    )


def _median_alive(job: JobTimeline, processes: Sequence[Process]) -> int:
    """How many of some processes were alive at a time, as a median."""
    start, end = job.recording.start_ns, job.recording.end_ns
    moments = [start + (end - start) * step // 50 for step in range(1, 50)]
    return sorted(sum(process.alive_at(time) for process in processes) for time in moments)[len(moments) // 2]


def _top(parts: list[Amounts[str]]) -> tuple[tuple[str, float], ...]:
    return tuple(list(Amounts.summed(parts).fractions().items())[:_SHOWN])
