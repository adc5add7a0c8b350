"""What a main thread computes in each phase: the model's arithmetic, or interpreter and dispatch around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from perfdoctor.attribution.code_samples import (
    RUNNING,
    certain_code,
    code_of_lines,
    functions_outside_torch,
    is_blurred,
    samples_of_training,
)
from perfdoctor.attribution.device_host import (
    DRIVES,
    LAUNCHES,
    WAITS,
    launching_in,
    maps_memory,
    waits_in_kernel,
    with_device,
    with_missing,
)
from perfdoctor.attribution.mix_of_lines import NO_CODE, CodeOfLines
from perfdoctor.attribution.share import DEVICE_WAIT, IN_DRIVER, LAUNCHING, STAGING
from perfdoctor.causes import INPUT_PREPROCESSING, MODEL_COMPUTE, PYTHON_OVERHEAD, UNATTRIBUTED
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import PHASES
from perfdoctor.metrics.settings import has_loader
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import AFTERWARDS, HOOK, PREPARES, TRAINING_PHASES, CodeLocation
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.stand_ins import ENOUGH, drawn, stand_ins

# Phases that have a cause of their own, whatever is computed in them.
CLAIMED = frozenset(("data", "saving", "logging"))

# Libraries' work that can only have been called by the model itself: by its hooks, or to match targets.
IN_STEP = "library in step"

_ALL = (*PHASES, PREPARES, AFTERWARDS)
# Samples by kind of code (``perfdoctor.knowledge.symbols``), for each phase.
ByPhase = dict[str, Counter[str]]


def phase_of(location: CodeLocation) -> str:
    """What samples are counted by: the phase and, in a loop of the job's own, the side of the model's call.

    A hook that only reads out does what the loop might do afterwards.
    """
    if location.detail == HOOK:
        return AFTERWARDS
    return location.detail if location.detail in (PREPARES, AFTERWARDS) else location.phase


def count_code(job: JobTimeline, pid: int) -> tuple[ByPhase, ByPhase]:
    """Counts a main thread's samples while it trains, outside of the garbage collector.

    Returns:
        Those of times in which no thread of the intra-op pool lacks a CPU, and those of all others.
    """
    undisturbed: ByPhase = {phase: Counter() for phase in _ALL}
    held_up: ByPhase = {phase: Counter() for phase in _ALL}
    times, kinds = samples_of_training(job, pid)
    for number, count in stand_ins([1] * len(times), kinds, ENOUGH).items():
        time_ns, kind = times[number], kinds[number]
        if job.gil.is_collecting(pid, time_ns):
            continue
        phase = phase_of(job.locator.locate(pid, time_ns, RUNNING, in_c=kind != "interpreter"))
        found = held_up if job.kinds.pool_delay(pid, time_ns) >= thresholds.SURE_DELAY else undisturbed
        found[phase][_in_phase(kind, phase)] += count  # type: ignore[assignment]
    return undisturbed, held_up


def _in_phase(kind: str, phase: str) -> str:
    """A kind of code in a phase: where gradients are computed, only anomaly detection looks for NaN."""
    return "kernel" if kind == "check" and phase != "backward" else kind


def running_by_phase(job: JobTimeline, pid: int) -> dict[str, float]:
    """A main thread's running time by phase (``phase_of``), in fractions."""
    counts: Amounts[str] = Amounts()
    begin, end = job.training_span(job.processes.by_pid[pid])
    times = [time_ns for time_ns in job.threads.main_times(pid) if begin <= time_ns <= end]
    for time_ns in drawn(times, ENOUGH):
        state = job.threads.main_at(pid, time_ns)
        if state.is_runnable:
            counts[phase_of(job.locator.locate(pid, time_ns, state))] += 1
    return counts.fractions()


def misplaced(by_phase: ByPhase, running: Mapping[str, float]) -> float:
    """Of libraries' samples that seem to lie in a step, the part for which the code outside of steps has time.

    A sample is given to the nearest stack, so some of what prepares the input seems to lie in the step beside it.

    Args:
        by_phase: samples by the phase of their times.
        running: the running time by phase, in fractions.
    """
    total = sum(counts.total() for counts in by_phase.values())
    outside = thresholds.SEEN_OUTSIDE_STEPS * total * (1 - sum(running.get(phase, 0.0) for phase in TRAINING_PHASES))
    inside = sum(by_phase[phase]["library"] for phase in TRAINING_PHASES)
    placed = sum(counts["library"] for counts in by_phase.values()) - inside
    return min(1.0, max(0.0, outside - placed) / inside) if inside else 1.0


def mark_in_step(by_phase: Mapping[str, Counter[str]], wrong: float) -> ByPhase:
    """Calls libraries' samples in a step by a name of their own, except for the part that seems to lie there only."""
    return {
        phase: _in_step(counts, wrong) if phase in TRAINING_PHASES else counts for phase, counts in by_phase.items()
    }


def _in_step(counts: Counter[str], wrong: float) -> Counter[str]:
    marked = Counter(counts)
    library = marked.pop("library", 0)
    marked["library"], marked[IN_STEP] = library * wrong, library * (1 - wrong)  # type: ignore[assignment]
    return marked


def share_out(
    by_phase: Mapping[str, Counter[str]],
    running: Mapping[str, float],
    claimed: frozenset[str],
    apart: Collection[str] = (),
) -> ByPhase:
    """Gives samples to phases of which each is too short to be met by a sample's time.

    Args:
        by_phase: samples by the phase of their times.
        running: the running time by phase, in fractions.
        claimed: phases that get none, since their cause is known.
        apart: of these, phases that keep their own.

    Returns:
        The same samples for all phases of training, and the same for all of the job's own code.
    """
    if apart:
        others = {phase: counts for phase, counts in by_phase.items() if phase not in apart}
        left = Amounts({phase: part for phase, part in running.items() if phase not in apart}).fractions()
        kept = {phase: Counter(by_phase[phase]) for phase in apart}
        return {**share_out(others, left, claimed), **kept}
    taken = sum(part for phase, part in running.items() if phase in claimed)
    unclaimed = _without_claimed(sum(by_phase.values(), Counter()), taken)
    in_step = sum(part for phase, part in running.items() if phase in TRAINING_PHASES)
    step, own = _apart(unclaimed, 1 - in_step / (1 - taken) if taken < 1 else 0.0)
    shared = {phase: step if phase in TRAINING_PHASES else own for phase in _ALL if phase not in claimed}
    return mark_in_step(shared, 0.0)


def _apart(counts: Counter[str], own: float) -> tuple[Counter[str], Counter[str]]:
    """Gives the samples of libraries to the job's own code, since a step of torch's has no use for them.

    Args:
        counts: samples by kind, of steps and of the job's own code together.
        own: the own code's fraction of the time.

    Returns:
        Samples in steps and in the job's own code, together as many; the same mix for both where one is too small.
    """
    in_own = own * counts.total()
    library = min(counts["library"], in_own)
    rest = counts.total() - library
    if min(in_own, counts.total() - in_own) < thresholds.CODE_SAMPLES:
        return counts, counts
    part = (in_own - library) / rest
    mine, steps = Counter[str](), Counter[str]()
    for kind, count in counts.items():
        shared = count - library if kind == "library" else count
        mine[kind] = shared * part + (library if kind == "library" else 0)  # type: ignore[assignment]
        steps[kind] = shared * (1 - part)  # type: ignore[assignment]
    return steps, mine


def _without_claimed(counts: Counter[str], claimed: float) -> Counter[str]:
    """Takes the claimed phases' part out of all samples, library and interpreter code first.

    That is what input and saving are made of, and taking it there errs on the side of finding no bottleneck.
    """
    left = Counter(counts)
    to_take = claimed * counts.total()
    for kind in ("library", "interpreter", "dispatch", "kernel"):
        taken = min(left[kind], to_take)
        left[kind] -= taken  # type: ignore[assignment]
        to_take -= taken
    return left


SPIN = "spin"

# Which cause each class of machine code counts for.
_CAUSES = {
    "interpreter": PYTHON_OVERHEAD,
    "dispatch": PYTHON_OVERHEAD,
    "check": PYTHON_OVERHEAD,
    "kernel": MODEL_COMPUTE,
    "spin": SPIN,
    # Decoders, compressors and array libraries: a step of torch's has no use for them.
    "library": INPUT_PREPROCESSING,
    IN_STEP: PYTHON_OVERHEAD,
    WAITS: DEVICE_WAIT,
    DRIVES: IN_DRIVER,
    LAUNCHES: LAUNCHING,
    "copy": STAGING,
}

# What machine code shows by itself: torch's kernels and the barriers of their pool.
_PHASELESS = (MODEL_COMPUTE, SPIN, DEVICE_WAIT, IN_DRIVER)

# Per phase, cause to fraction of its running time; phases that were not sampled enough are absent.
Mixes = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class CodeMix:
    """What running in each phase counts for.

    ``spin`` stands beside the causes: waiting at a barrier for other threads of the pool, with a busy CPU.

    Attributes:
        by_phase: over all of the time.
        interpreter: of interpreter and dispatch together, the interpreter's part; None where too little was sampled.
        libraries: of what counts as Python overhead, the part of libraries other than torch's; None likewise.
        held_up: while a thread of the intra-op pool lacks a CPU. The others spin then, and do not before and after,
            so a neighbour that comes and goes costs more than a mean over all of the time would show.
        undisturbed: while none does.
        outside_torch: functions of the job's own that spend most of their time in Python's interpreter or in libraries
            other than torch, and that part of it.
        of_lines: what certainly ran at lines of the job's own.
        located: it is known where in its code the process is; if not, neither is what its Python code is for.
        on_gpu: the process computes on a GPU.
        mapping: of each phase's running time, the part in which the kernel allocates and frees the GPU's memory.
    """

    by_phase: Mixes
    interpreter: float | None = None
    libraries: float | None = None
    held_up: Mixes = field(default_factory=dict)
    undisturbed: Mixes = field(default_factory=dict)
    outside_torch: Mapping[str, float] = field(default_factory=dict)
    of_lines: CodeOfLines = NO_CODE
    located: bool = True
    on_gpu: bool = False
    mapping: Mapping[str, float] = field(default_factory=dict)

    def causes(self, location: CodeLocation, *, held_up: bool) -> Mapping[str, float]:
        """What running at a location counts for, ``spin`` included, summing to 1."""
        found = self._causes(location, held_up=held_up)
        return found if self.located else _without_location(found)

    def _causes(self, location: CodeLocation, *, held_up: bool) -> Mapping[str, float]:
        phase = phase_of(location)
        for mixes in (self.held_up if held_up else self.undisturbed, self.by_phase):
            if phase in mixes:
                return mixes[phase]
        if phase == PREPARES:
            return {INPUT_PREPROCESSING: 1.0}
        if self.on_gpu:
            return {LAUNCHING if phase in TRAINING_PHASES else DEVICE_WAIT: 1.0}
        # Without samples of the machine code, a step's own phases count as arithmetic, the rest as the interpreter's.
        return {MODEL_COMPUTE if phase in TRAINING_PHASES else PYTHON_OVERHEAD: 1.0}


def read_code_mix(job: JobTimeline, pid: int, in_kernel: float = 0.0, allocating: float | None = None) -> CodeMix:
    """Measures the mix of one trainer's main thread.

    Args:
        job: the job.
        pid: the trainer.
        in_kernel: of its running time, the part in the kernel that nothing explains but what a GPU's driver does there.
        allocating: the most of it that can be for allocating and freeing a GPU's memory; None where it does neither.
    """
    located, on_gpu = job.locator.is_known(pid), job.gpus.used_by(pid)
    undisturbed, held_up = count_code(job, pid)
    both = {phase: counts + held_up[phase] for phase, counts in undisturbed.items()}
    # In front of the model's call, the host of a GPU copies batches and launches work on them; with a DataLoader, it
    # prepares no more than a rest there itself.
    calls_only = on_gpu and has_loader(job, {pid})
    claimed = CLAIMED if calls_only else CLAIMED | {PREPARES}
    running = running_by_phase(job, pid)
    mapping: Mapping[str, float] = {}
    if on_gpu and in_kernel:
        missing = waits_in_kernel(both, running, in_kernel, allocates=allocating is not None)
        if allocating is not None:
            mapping = maps_memory(both, running, in_kernel, allocating, CLAIMED)
        undisturbed, held_up, both = (with_missing(counts, missing) for counts in (undisturbed, held_up, both))
    blurred = is_blurred(job, pid)
    # A copy to the device takes long enough to be met where it is; the driver's code shows it among what prepares.
    apart = {PREPARES} if on_gpu and not calls_only else set[str]()
    if blurred:
        undisturbed, held_up, both = (
            share_out(counts, running, claimed, apart) for counts in (undisturbed, held_up, both)
        )
    elif any(both[phase]["library"] for phase in TRAINING_PHASES):
        wrong = misplaced(both, running)
        undisturbed, held_up, both = (mark_in_step(counts, wrong) for counts in (undisturbed, held_up, both))
    placed = _as_long_as_they_run(both, running) if blurred else both
    around = sum((counts for phase, counts in placed.items() if phase not in claimed), Counter())
    of_copies = None if blurred and not apart else calls_only
    mixes = [_mixes(counts, of_copies, on_gpu=on_gpu) for counts in (both, held_up, undisturbed)]
    certain = list(certain_code(job, pid))
    return CodeMix(
        by_phase=mixes[0],
        interpreter=_interpreter(around),
        libraries=_libraries(around, placed[AFTERWARDS]["library"]),
        held_up=mixes[1],
        undisturbed=mixes[2],
        outside_torch=functions_outside_torch(job, certain),
        of_lines=code_of_lines(certain, on_gpu=on_gpu),
        located=located or blurred,
        on_gpu=on_gpu,
        mapping=mapping,
    )


def _as_long_as_they_run(by_phase: ByPhase, running: Mapping[str, float]) -> ByPhase:
    """The samples of phases of which each was given those of all, by how long each runs."""
    return {
        phase: Counter({kind: count * running.get(phase, 0.0) for kind, count in counts.items()})
        for phase, counts in by_phase.items()
    }


def _without_location(mix: Mapping[str, float]) -> Mapping[str, float]:
    """Of a mix, what is known without the phase: Python code may prepare the input as well as call the model."""
    found: Amounts[str] = Amounts()
    for cause, part in mix.items():
        found[cause if cause in _PHASELESS else UNATTRIBUTED] += part
    return found


def _interpreter(counts: Counter[str]) -> float | None:
    """Of interpreter and dispatch together, the interpreter's part; None where too little was sampled."""
    calls = counts["interpreter"] + counts["dispatch"]
    return counts["interpreter"] / calls if calls >= thresholds.CODE_SAMPLES else None


def _libraries(around: Counter[str], afterwards: float) -> float | None:
    """Of interpreter, dispatch and what libraries do in the step or after it, the libraries' part."""
    libraries = around[IN_STEP] + afterwards
    overhead = around["interpreter"] + around["dispatch"] + libraries
    return libraries / overhead if overhead >= thresholds.CODE_SAMPLES else None


def _mixes(by_phase: ByPhase, calls_only: bool | None = None, *, on_gpu: bool) -> Mixes:
    """Cause to fraction for each phase with enough samples.

    Args:
        by_phase: samples by kind of code.
        calls_only: what runs around the arithmetic of code that prepares the input is a Python loop over a batch's
            elements; None where samples are not that code's alone.
        on_gpu: the process computes on a GPU.
    """
    launching = 0.0
    if on_gpu:
        seen = sum(by_phase.values(), Counter())
        asks_time = seen["clock"] + seen["yield"] > 0 and not seen["driver without clock"]
        launching = 1.0 if calls_only else launching_in(by_phase.get(PREPARES, Counter()))
        by_phase = {phase: with_device(counts, asks_time=asks_time) for phase, counts in by_phase.items()}
    mixes = {phase: mix for phase, counts in by_phase.items() if (mix := _fractions(counts, phase))}
    if calls_only is not None and PREPARES in mixes:
        kept = {SPIN: 1.0, DEVICE_WAIT: 1.0, IN_DRIVER: 1.0, STAGING: 1.0, LAUNCHING: launching}
        kept |= {PYTHON_OVERHEAD: 1.0} if calls_only else {}
        found = {cause: part * kept[cause] for cause, part in mixes[PREPARES].items() if cause in kept}
        mixes[PREPARES] = {**found, INPUT_PREPROCESSING: 1 - sum(found.values())}
    return mixes


def _fractions(counts: Counter[str], phase: str) -> dict[str, float]:
    """Counts of code kinds in a phase as fractions by cause; {} where they say too little.

    What libraries compute from the model's output, metrics for instance, prepares no input.
    """
    known = counts.total() - counts["other"]
    if known < thresholds.CODE_SAMPLES or counts["other"] > thresholds.UNKNOWN_CODE * counts.total():
        return {}
    found: Amounts[str] = Amounts()
    for kind, count in counts.items():
        if kind == "library" and phase == AFTERWARDS:
            found[PYTHON_OVERHEAD] += count
        elif kind != "other":
            found[_CAUSES[kind]] += count
    return {cause: count / known for cause, count in found.items()}
