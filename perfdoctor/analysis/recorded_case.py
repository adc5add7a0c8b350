"""What rules read, gathered from a recording: the breakdown, measured numbers, and how the job is set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdoctor.amounts import Amounts
from perfdoctor.analysis.profiled import Profiled
from perfdoctor.attribution.account import Ledger, find_culprits
from perfdoctor.attribution.numbers import measure_ledgers
from perfdoctor.diagnosis import Evidence
from perfdoctor.metrics.code_seen import read_code_settings
from perfdoctor.metrics.measure import measure
from perfdoctor.metrics.names import Measured
from perfdoctor.metrics.overlap import measure_longer, measure_overlap
from perfdoctor.metrics.own_code import below, below_lines, by_function, outside_torch
from perfdoctor.metrics.settings import read_settings
from perfdoctor.recording.clock import seconds
from perfdoctor.rules.case import Facts, Trainer
from perfdoctor.timeline.job import Scene
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.steps import Steps

# So many files or devices of a cause are told.
_SHOWN = 5
# Lines that are known for less than this part of a cause's time do not tell where it is.
_TELLING = 1 / 8


def gather_facts(scene: Scene, ledgers: list[Ledger], profiled: Profiled) -> Facts:
    """Everything that rules may read."""
    together = Amounts.summed(ledger.causes() for ledger in ledgers)
    pids = [
        (ledger.trainer.pid, [worker.pid for worker in scene.roles.workers_of(ledger.trainer.pid)])
        for ledger in ledgers
    ]
    seen, accounted = measure(scene.recording, scene.timelines, pids), measure_ledgers(ledgers)
    steps = _by_rank(scene, ledgers)
    longer = measure_longer(steps)
    own = {cause: _telling(ledgers, cause, together[cause]) for cause in together}
    under = below_lines(scene.stacks)
    return Facts(
        shares=together.fractions(),
        trainers=tuple(_trainer(scene, ledger, [seen, accounted], longer) for ledger in ledgers),
        culprits=find_culprits(ledgers),
        numbers={
            **seen.job,
            **accounted.job,
            **profiled.numbers,
            **measure_overlap(steps),
        },
        kernels=profiled.kernels,
        operators=profiled.operators,
        settings={**read_settings(scene.recording, pids), **read_code_settings(scene)},
        paths={
            cause: _top([ledger.targets.get(cause, Amounts()) for ledger in ledgers]) for cause in together
        },
        lines={cause: by_function(lines) for cause, lines in own.items()},
        below={cause: below(lines, under) for cause, lines in own.items()},
        python_lines={cause: by_function(outside_torch(lines, under)) for cause, lines in own.items()},
        watched_s=seconds(scene.recording.end_ns - scene.recording.start_ns),
    )


def _telling(ledgers: Sequence[Ledger], cause: str, seconds: float) -> Amounts[str]:
    """The source lines of a cause; none where it is mostly elsewhere, in what workers take from the trainer's cores."""
    lines = Amounts.summed(ledger.lines.get(cause, {}) for ledger in ledgers)
    return lines if lines.total >= _TELLING * seconds else Amounts()


def _by_rank(scene: Scene, ledgers: Sequence[Ledger]) -> dict[int, Steps]:
    """The steps of those that marked them."""
    trainers = [ledger.trainer for ledger in ledgers]
    return {trainer.rank or 0: scene.steps[trainer.pid] for trainer in trainers if trainer.pid in scene.steps}


def _trainer(
    scene: Scene, ledger: Ledger, measured: Sequence[Measured], longer: Mapping[int, Evidence]
) -> Trainer:
    rank, pid = ledger.trainer.rank or 0, ledger.trainer.pid
    workers = scene.roles.workers_of(pid)
    watched = ledger.seconds or 1.0
    numbers = {name: number for one in measured for name, number in one.trainers.get(pid, {}).items()}
    if rank in longer:
        numbers["longer"] = longer[rank]
    return Trainer(
        rank=rank,
        pid=pid,
        shares=ledger.causes().fractions(),
        phases=ledger.phases.fractions(),
        blamed={rank: amount / watched for rank, amount in ledger.waited_for().items()},
        worker_pids=tuple(worker.pid for worker in workers),
        workers=_at_a_time(scene, workers),
        helpers=_at_a_time(scene, scene.roles.helpers_of(pid)),
        numbers=numbers,
    )


def _at_a_time(scene: Scene, processes: Sequence[Process]) -> int:
    """How many of some processes were alive at a time, as a median."""
    alive = [sum(process.alive_at(time) for process in processes) for time in _moments(scene)]
    return sorted(alive)[len(alive) // 2]


def _moments(scene: Scene) -> list[int]:
    start, end = scene.recording.start_ns, scene.recording.end_ns
    return [start + (end - start) * step // 50 for step in range(1, 50)]


def _top(parts: list[Amounts[str]]) -> tuple[tuple[str, float], ...]:
    return tuple(list(Amounts.summed(parts).fractions().items())[:_SHOWN])
