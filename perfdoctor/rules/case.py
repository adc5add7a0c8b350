"""What rules read: the breakdown, the measured numbers, and how the job is set up."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from perfdoctor.causes import NETWORK_READ
from perfdoctor.diagnosis import Evidence
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import switched_on
from perfdoctor.knowledge.libraries import PROGRAMS
from perfdoctor.knowledge.versions import Version, compiles, is_older
from perfdoctor.metrics.neighbours import BusyHelper, Neighbour
from perfdoctor.metrics.own_detours import CostlyDetour
from perfdoctor.metrics.own_loops import CostlyLoop

# The phases in which the model computes.
PASSES = ("forward", "loss", "backward")


@dataclass(frozen=True, slots=True)
class Trainer:
    """A process that trains, and what its main thread's wall time went into.

    Attributes:
        rank: its rank, 0 for a job of one trainer.
        shares: cause id to fraction of this trainer's wall time; sums to 1.
        phases: phase to fraction of this trainer's wall time; sums to 1.
        waited_for: rank to the fraction of this trainer's wall time that it waited for that rank.
        worker_pids: its loader workers, those already gone included.
        workers: how many of them were alive at a time, as a median.
        helpers: the same of other processes below it, a pool or environments for instance.
        numbers: what was measured of this trainer alone, by the names of ``perfdoctor.metrics.names``.
    """

    rank: int
    pid: int
    shares: Mapping[str, float]
    phases: Mapping[str, float]
    waited_for: Mapping[int, float]
    worker_pids: tuple[int, ...]
    workers: int
    helpers: int = 0
    numbers: Mapping[str, Evidence] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        """A number measured of this trainer, None where it was not measured."""
        return _value(self.numbers.get(name))


@dataclass(frozen=True, slots=True)
class DoneAlone:
    """What the rank that the others wait for does and they do not: a log, a checkpoint, an evaluation.

    Attributes:
        rank: which.
        lines: as those of a case, with fractions of the rank's wall time.
        share: of that rank's wall time, all of it.
        waited: of the others' wall time, what they wait for this rank.
    """

    rank: int
    lines: tuple[tuple[str, float], ...]
    share: float
    waited: float


@dataclass(frozen=True, slots=True)
class Case:
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
        line_parts: the lines by themselves, likewise: cause id to line to fraction.
        below: what was innermost while those lines were on the stack, by cause id: package to fraction, "" for code of
            the job's own.
        library_calls: what those lines call of libraries other than torch, likewise: ``(package function, fraction)``.
        python_lines: as ``lines``, without what ran in torch.
        called_lines: as ``lines``, without what the optimizer's step calls: nobody writes its operations but PyTorch.
        loops: of the same, what ran in loops of the job's own, largest first; None where the source was not read.
        kernels: what ran on a GPU longest, by cause id: ``(kernel, fraction of that work's time)``.
        operators: what called the work of a cause most: ``(operator, fraction of that cause's time)``.
        done_afterwards: functions that compute below the model's passes: ``(line, fraction of the wall time)``.
        read_outs: lines of such functions that do nothing but read something out.
        hooks: lines of functions that torch calls in the middle of a pass, and that only read something out.
        whole_tensors: functions that compute with tensors and multiply little: ``(line, fraction of the wall time)``.
        outside_torch: functions that mostly run in Python's interpreter or in libraries other than torch, likewise.
        detours: what the job's own source does again or for nothing, that with most of the time first.
        exchanged_besides: lines that call collectives outside of the model's passes: ``(line, fraction of the time)``.
        done_alone: what one rank alone does, for which the others wait; None where nothing is.
        neighbours: processes outside the job that keep most of its cores busy, the busiest first.
        busy_helper: the busiest process of its own that neither trains nor makes batches for a loader.
        versions: of ``python`` and ``torch``, as far as they were read.
        code_seen: machine code of trainers was sampled: without that, calls of operators look like arithmetic.
        watched_s: seconds watched.
        ranges: cause id to the smallest and largest share that is likely, by chance alone; see ``range_of``.
        once: cause id to how long it lasted, in seconds, where it was not seen to come again: in a single stretch, say.
        late: cause id to the fraction of all ranks' time that they wait for it in other ranks.
    """

    shares: Mapping[str, float]
    trainers: tuple[Trainer, ...]
    culprits: Mapping[str, tuple[int, ...]]
    numbers: Mapping[str, Evidence] = field(default_factory=dict)
    settings: Mapping[str, str | float] = field(default_factory=dict)
    paths: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    lines: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    line_parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    below: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    library_calls: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    python_lines: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    called_lines: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    loops: Mapping[str, tuple[CostlyLoop, ...]] | None = None
    kernels: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    operators: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    done_afterwards: tuple[tuple[str, float], ...] = ()
    read_outs: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    whole_tensors: tuple[tuple[str, float], ...] = ()
    outside_torch: tuple[tuple[str, float], ...] = ()
    detours: tuple[CostlyDetour, ...] = ()
    exchanged_besides: tuple[tuple[str, float], ...] = ()
    done_alone: DoneAlone | None = None
    neighbours: tuple[Neighbour, ...] = ()
    busy_helper: BusyHelper | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    code_seen: bool = True
    watched_s: float = 0.0
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    once: Mapping[str, float] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)

    def range_of(self, cause: str) -> tuple[float, float]:
        """Between which fractions of wall time a cause lies nine times in ten; its share where that is not known."""
        share = self.share(cause)
        return self.ranges.get(cause, (share, share))

    def share(self, cause: str) -> float:
        """Fraction of wall time that went into a cause."""
        return self.shares.get(cause, 0.0)

    @property
    def gpu_name(self) -> str:
        """The model of its first GPU, as the driver reports it; "" where that is not known."""
        return str(self.settings.get("gpu_name", ""))

    def number(self, name: str) -> float | None:
        """A number measured of the whole job, None where it was not measured."""
        return _value(self.numbers.get(name))

    def waits_for(self, ranks: Collection[int]) -> bool:
        """Whether some ranks are waited for by others."""
        return any(trainer.waited_for.get(rank, 0.0) > 0 for trainer in self.trainers for rank in ranks)

    def mean_of(self, name: str) -> float:
        """The mean over trainers of a number; those of which it was not measured count as none."""
        seen = [trainer.number(name) or 0.0 for trainer in self.trainers]
        return sum(seen) / max(1, len(seen))

    def phase(self, name: str) -> float:
        """Fraction of the trainers' wall time that they were in a phase."""
        return sum(trainer.phases.get(name, 0.0) for trainer in self.trainers) / max(1, len(self.trainers))

    def evidence(self, name: str) -> list[Evidence]:
        """A number as evidence: that of the whole job, or else those of its trainers; none where not measured."""
        owners: list[Case | Trainer] = [self] if name in self.numbers else list(self.trainers)
        return [owner.numbers[name] for owner in owners if name in owner.numbers]

    def measured(self, name: str) -> Evidence | None:
        """A measured number with its unit, None where it was not measured."""
        return self.numbers[name] if self.number(name) is not None else None

    def setting(self, name: str) -> float | None:
        """A setting as a number; None if unknown or not a number."""
        try:
            value = float(self.settings[name])
        except (KeyError, ValueError):
            return None
        return None if math.isnan(value) else value

    def variable(self, name: str) -> str | None:
        """An environment variable of the job; None if unset or unknown."""
        value = self.settings.get(f"env.{name}")
        return None if value is None else str(value)

    def of_running(self, name: str) -> float:
        """A part of the samples of running main threads, in parts of the wall time; 0 where it was not measured."""
        return (self.number(name) or 0.0) * (self.number("trainer_running") or 0.0)

    def switched_on(self, name: str) -> bool:
        """Whether an environment variable is set to something that means yes."""
        return switched_on(self.variable(name))

    @property
    def uses_gpu(self) -> bool:
        """Whether the job is known to use a GPU."""
        return (self.number("gpus") or self.setting("gpus") or 0) > 0 or self.settings.get("on_gpu") == "yes"

    @property
    def may_have_loader(self) -> bool:
        """Whether the job takes its batches from a loader, or may do so."""
        return self.settings.get("loader") != "no"

    @property
    def asks_helpers(self) -> bool:
        """Whether its trainer waits for processes of its own that are no workers of a loader."""
        loader = self.settings.get("loader")
        return loader == "no" or (loader is None and self.number("helpers_at_once") is not None)

    @property
    def depends_on_steps(self) -> bool:
        """Whether what comes next follows from steps before: environments' answers, batches from what they change."""
        asks = "environments" in self.settings or self.settings.get("helpers") == "for the model"
        return asks or "made_of_state" in self.settings

    def calls_among(self, cause: str, calls: Collection[str]) -> dict[str, float]:
        """Of some calls of libraries those that a cause's lines call, each with its fraction of that cause's time."""
        return {call: part for call, part in self.library_calls.get(cause, ()) if call in calls}

    def part_of_programs(self, cause: str) -> float:
        """Of a cause's time the fraction in which its lines run other programs, or wait for them."""
        return sum(part for call, part in self.library_calls.get(cause, ()) if call.startswith(PROGRAMS))

    @property
    def compiled(self) -> bool:
        """Whether torch.compile made what the job runs."""
        return self.settings.get("compiled") == "yes"

    @property
    def can_compile(self) -> bool:
        """Whether its PyTorch compiles models under its Python, as far as is known."""
        return compiles(self.versions.get("torch"), self.versions.get("python"))

    def has_torch(self, since: Version) -> bool:
        """Whether its PyTorch is of some version or a newer one, as far as is known."""
        return not is_older(self.versions.get("torch"), since)

    @property
    def in_graphs(self) -> bool:
        """Whether most of what the GPU does is launched as CUDA graphs already."""
        return self.settings.get("graphs") == "yes"

    @property
    def trains(self) -> bool:
        """Whether the model is trained, as far as anybody knows."""
        return self.settings.get("trains") != "no"

    @property
    def loop(self) -> str:
        """Whose training loop the job runs: ``transformers``, ``lightning``; "" if it is its own, or not known."""
        return str(self.settings.get("loop", ""))

    @property
    def gpu_memory(self) -> float | None:
        """Which fraction of the GPU's memory is in use, as the driver or else PyTorch's allocator says."""
        used = self.number("gpu_memory_share")
        return self.number("traced_memory") if used is None else used

    def trainers_with(self, cause: str) -> list[Trainer]:
        """The trainers in which a cause lies; all of them where that is not known."""
        ranks = self.culprits.get(cause, ())
        return [trainer for trainer in self.trainers if trainer.rank in ranks] or list(self.trainers)

    def hot_line(self, cause: str) -> str | None:
        """The job's own source line that is on the stack most often, as ``file.py:12 function``."""
        lines = self.lines.get(cause, ())
        return lines[0][0] if lines else None

    def hot_call(self, cause: str) -> tuple[str | None, float]:
        """The call of a library other than torch that takes most of a cause, and its part; None if none stands out."""
        call, part = next(iter(self.library_calls.get(cause, ())), ("", 0.0))
        return (call, part) if part >= thresholds.NAMED_FUNCTION else (None, 0.0)

    def hot_path(self, cause: str) -> str | None:
        """The file that was read, written or waited on most; pipes, sockets and the like do not count."""
        for target, _ in self.paths.get(cause, ()):
            kind, _, path = target.partition(":")
            if kind == "file":
                return path
            if target.startswith("/"):
                return target
        return None

    def served_by(self, cause: str) -> str | None:
        """The process outside of the job that most of a cause's waiting is for, as ``name (pid)``; None if for none."""
        target, part = next(iter(self.paths.get(cause, ())), ("", 0.0))
        kind, _, name = target.partition(":")
        return name if kind == "process" and part > thresholds.MOSTLY else None

    def is_read_by_another(self, cause: str) -> bool:
        """Whether most of a cause is about a pipe, a terminal or a connection, whose other end may be slow."""
        return self._part(cause, ("pipe", "socket")) > thresholds.MOSTLY

    def comes_through_pipe(self, cause: str) -> bool:
        """Whether most of a cause is about a pipe: as fast as whoever writes into it, however many read."""
        return self._part(cause, ("pipe",)) > thresholds.MOSTLY

    def network_system(self, cause: str) -> str | None:
        """The type of the network file system that most of a cause is about; None where that is none, or not known."""
        system = self.file_system(self.hot_path(cause))
        return system.split()[0] if system is not None and "network" in system else None

    def comes_over_network(self, cause: str) -> bool:
        """Whether most of a cause is about what other hosts send."""
        return cause == NETWORK_READ or self.network_system(cause) is not None

    def _part(self, cause: str, kinds: tuple[str, ...]) -> float:
        return sum(part for target, part in self.paths.get(cause, ()) if target.startswith(kinds))

    def file_system(self, path: str | None) -> str | None:
        """Type of the file system that holds a path, with the word ``network`` behind it where it is one."""
        if path is None:
            return None
        mounts = [name[len("mount.") :] for name in self.settings if name.startswith("mount.")]
        holding = [mount for mount in mounts if path == mount or path.startswith(mount.rstrip("/") + "/")]
        return str(self.settings[f"mount.{max(holding, key=len)}"]) if holding else None


def _value(evidence: Evidence | None) -> float | None:
    return float(evidence.value) if evidence is not None and isinstance(evidence.value, (int, float)) else None
