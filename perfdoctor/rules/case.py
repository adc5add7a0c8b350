"""What rules read: the breakdown, the measured numbers, and how the job is set up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfdoctor.diagnosis import Evidence


@dataclass(frozen=True, slots=True)
class Trainer:
    """A process that trains, and what its main thread's wall time went into.

    Attributes:
        rank: its rank, 0 for a job of one trainer.
        shares: cause id to fraction of this trainer's wall time; sums to 1.
        phases: phase to fraction of this trainer's wall time; sums to 1.
        blamed: rank to the fraction of this trainer's wall time that it waited for that rank.
        worker_pids: its loader workers, those already gone included.
        workers: how many of them were alive at a time, as a median.
        helpers: the same of other processes below it, a pool or environments for instance.
        numbers: what was measured of this trainer alone, by the names of ``perfdoctor.metrics.names``.
    """

    rank: int
    pid: int
    shares: Mapping[str, float]
    phases: Mapping[str, float]
    blamed: Mapping[int, float]
    worker_pids: tuple[int, ...]
    workers: int
    helpers: int = 0
    numbers: Mapping[str, Evidence] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        """A number measured of this trainer, None where it was not measured."""
        return _value(self.numbers.get(name))


@dataclass(frozen=True, slots=True)
class Facts:
    """All that rules may look at.

    Attributes:
        shares: cause id to fraction of wall time, mean over trainers; sums to 1.
        culprits: cause id to the ranks in which it lies (a straggler's, where one was followed to).
        numbers: name to number measured of the whole job; see ``perfdoctor.metrics.names``.
        settings: what is already set in this job: environment variables (``env.OMP_NUM_THREADS``), ``workers``,
            ``cores`` … as text or number.
        paths: what was read, written or waited on most, by cause id: ``(target, fraction of that cause's time)``.
        lines: functions of the job most often on the stack, by cause id: ``("file.py:12 function", fraction)`` with the
            function's hottest line and the whole function's fraction.
        below: what was innermost while those lines were on the stack, by cause id: package to fraction, "" for code of
            the job's own.
        python_lines: as ``lines``, without what ran in torch.
        kernels: what ran on a GPU longest, by cause id: ``(kernel, fraction of that work's time)``.
        operators: what called the work of a cause most: ``(operator, fraction of that cause's time)``.
        watched_s: seconds watched.
    """

    shares: Mapping[str, float]
    trainers: tuple[Trainer, ...]
    culprits: Mapping[str, tuple[int, ...]]
    numbers: Mapping[str, Evidence] = field(default_factory=dict)
    settings: Mapping[str, str | float] = field(default_factory=dict)
    paths: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    lines: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    below: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    python_lines: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    kernels: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    operators: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    watched_s: float = 0.0

    def share(self, cause: str) -> float:
        """Fraction of wall time that went into a cause."""
        return self.shares.get(cause, 0.0)

    def number(self, name: str) -> float | None:
        """A number measured of the whole job, None where it was not measured."""
        return _value(self.numbers.get(name))

    def evidence(self, name: str) -> list[Evidence]:
        """A number as evidence: that of the whole job, or else those of its trainers; none where not measured."""
        owners: list[Facts | Trainer] = [self] if name in self.numbers else list(self.trainers)
        return [owner.numbers[name] for owner in owners if name in owner.numbers]


def _value(evidence: Evidence | None) -> float | None:
    return float(evidence.value) if evidence is not None and not isinstance(evidence.value, str) else None
