"""What rules read, gathered from a recording: the breakdown, measured numbers, and how the job is set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfdoctor.analysis.build import describe_trainer
from perfdoctor.analysis.profiled import Profiled
from perfdoctor.attribution.account import Account, find_culprits
from perfdoctor.causes import PYTHON_OVERHEAD
from perfdoctor.diagnosis import Evidence
from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.measure import measure
from perfdoctor.metrics.names import Measured, Numbers, of_process, put
from perfdoctor.metrics.overlap import measure_longer, measure_overlap
from perfdoctor.metrics.own_code import below, below_lines, by_function, outside_torch
from perfdoctor.metrics.settings import read_code_settings, read_settings
from perfdoctor.recording.clock import seconds
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.steps import Steps

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
    steps = _by_rank(job, accounts)
    longer = measure_longer(steps)
    own = {cause: _located(accounts, cause, together[cause]) for cause in together}
    under = below_lines(job.stacks)
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
        lines={cause: by_function(lines) for cause, lines in own.items()},
        below={cause: below(lines, under) for cause, lines in own.items()},
        python_lines={cause: by_function(outside_torch(lines, under)) for cause, lines in own.items()},
        watched_s=seconds(job.recording.end_ns - job.recording.start_ns),
    )


def measure_accounts(accounts: Sequence[Account]) -> Measured:
    """What main threads run around the arithmetic, and how long they prepare batches or draw indices themselves."""
    numbers: Numbers = {}
    put(numbers, "interpreter_code", _of_overhead(accounts, [account.interpreter for account in accounts]))
    put(numbers, "library_code", _of_overhead(accounts, [account.libraries for account in accounts]) or None)
    by_trainer: dict[int, Numbers] = {}
    for account in accounts:
        pid, watched = account.trainer.pid, account.seconds
        own = by_trainer.setdefault(pid, {})
        put(own, "own_fetching", account.fetching / watched if watched else None, of_process(pid))
        if account.sampling:
            put(own, "own_sampling", account.sampling / watched, of_process(pid))
        if account.compiling:
            put(own, "own_compiling", account.compiling / watched, of_process(pid))
    return Measured(numbers, by_trainer)


def _of_overhead(accounts: Sequence[Account], parts: Sequence[float | None]) -> float | None:
    """The mean of parts of the trainers' Python overhead, by how long it takes in each; None where none is known."""
    overhead = [sum(causes[PYTHON_OVERHEAD] for causes in account.own.values()) for account in accounts]
    known = [(seconds, part) for seconds, part in zip(overhead, parts, strict=True) if part is not None]
    total = sum(seconds for seconds, _ in known)
    return sum(seconds * part for seconds, part in known) / total if total else None


def _located(accounts: Sequence[Account], cause: str, seconds: float) -> Amounts[str]:
    """The source lines of a cause; none where it is mostly elsewhere, in what workers take from the trainer's cores."""
    lines = Amounts.summed(account.lines.get(cause, {}) for account in accounts)
    return lines if lines.total >= thresholds.LINES_KNOWN * seconds else Amounts()


def _by_rank(job: JobTimeline, accounts: Sequence[Account]) -> dict[int, Steps]:
    """The steps of those that marked them."""
    trainers = [account.trainer for account in accounts]
    return {trainer.rank or 0: job.steps[trainer.pid] for trainer in trainers if trainer.pid in job.steps}


def _trainer(
    job: JobTimeline, account: Account, measured: Sequence[Measured], longer: Mapping[int, Evidence]
) -> Trainer:
    rank, pid = account.trainer.rank or 0, account.trainer.pid
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
    alive = [sum(process.alive_at(time) for process in processes) for time in _moments(job)]
    return sorted(alive)[len(alive) // 2]


def _moments(job: JobTimeline) -> list[int]:
    start, end = job.recording.start_ns, job.recording.end_ns
    return [start + (end - start) * step // 50 for step in range(1, 50)]


def _top(parts: list[Amounts[str]]) -> tuple[tuple[str, float], ...]:
    return tuple(list(Amounts.summed(parts).fractions().items())[:_SHOWN])
