"""What a main thread computes in each phase: the model's arithmetic, or interpreter and dispatch around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from perfdoctor.attribution.device_host import (
    DRIVES,
    LAUNCHES,
    WAITS,
    launching_in,
    mapping_by_phase,
    missing_waits,
    with_device,
    with_missing,
)
from perfdoctor.attribution.machine_code_by_phase import (
    IN_STEP,
    ByPhase,
    as_long_as_they_run,
    count_code,
    mark_in_step,
    misplaced,
    phase_of,
    running_by_phase,
    share_out,
)
from perfdoctor.attribution.machine_code_samples import certain_code, code_of_lines, functions_outside_torch, is_blurred
from perfdoctor.attribution.mix_of_lines import NO_CODE, CodeOfLines
from perfdoctor.attribution.share import DEVICE_WAIT, IN_DRIVER, LAUNCHING, STAGING
from perfdoctor.causes import INPUT_PREPROCESSING, MODEL_COMPUTE, PYTHON_OVERHEAD, UNATTRIBUTED
from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.settings import has_loader
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import AFTERWARDS, PREPARES, TRAINING_PHASES, CodeLocation
from perfdoctor.timeline.job import JobTimeline

# Phases that have a cause of their own, whatever is computed in them.
CLAIMED = frozenset(("data", "saving", "logging"))

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
    on_gpu, blurred = job.gpus.used_by(pid), is_blurred(job, pid)
    code, running = count_code(job, pid), running_by_phase(job, pid)
    mapping: Mapping[str, float] = {}
    if on_gpu and in_kernel:
        if allocating is not None:
            mapping = mapping_by_phase(code.all, running, in_kernel, allocating, CLAIMED)
        missing = missing_waits(code.all, running, in_kernel, allocates=allocating is not None)
        code = code.each(partial(with_missing, missing=missing))
    # In front of the model's call, the host of a GPU copies batches and launches work on them; with a DataLoader, it
    # prepares no more than a rest there itself.
    calls_only = on_gpu and has_loader(job, {pid})
    claimed = CLAIMED if calls_only else CLAIMED | {PREPARES}
    # A copy to the device takes long enough to be met where it is; the driver's code shows it among what prepares.
    apart = {PREPARES} if on_gpu and not calls_only else set[str]()
    if blurred:
        code = code.each(partial(share_out, running=running, claimed=claimed, apart=apart))
    elif any(code.all[phase]["library"] for phase in TRAINING_PHASES):
        wrong = 0.0 if pid in job.steps else misplaced(code.all, running)
        code = code.each(partial(mark_in_step, wrong=wrong))
    placed = as_long_as_they_run(code.all, running) if blurred else code.all
    around = sum((counts for phase, counts in placed.items() if phase not in claimed), Counter())
    mixes = partial(_mixes, calls_only=None if blurred and not apart else calls_only, on_gpu=on_gpu)
    certain = list(certain_code(job, pid))
    return CodeMix(
        by_phase=mixes(code.all),
        interpreter=_interpreter(around),
        libraries=_libraries(around, placed[AFTERWARDS]["library"]),
        held_up=mixes(code.held_up),
        undisturbed=mixes(code.undisturbed),
        outside_torch=functions_outside_torch(job, certain),
        of_lines=code_of_lines(certain, on_gpu=on_gpu),
        located=job.locator.is_known(pid) or blurred,
        on_gpu=on_gpu,
        mapping=mapping,
    )


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


def _mixes(by_phase: ByPhase, *, calls_only: bool | None, on_gpu: bool) -> Mixes:
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
