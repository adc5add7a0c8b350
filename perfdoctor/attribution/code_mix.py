"""What a main thread computes in each phase: the model's arithmetic, or interpreter and dispatch around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfdoctor.attribution.code_counts import (
    CLAIMED,
    IN_STEP,
    LAUNCHES,
    WAITS,
    ByPhase,
    count_code,
    is_blurred,
    mark_in_step,
    misplaced,
    phase_of,
    running_by_phase,
    share_out,
    with_device,
)
from perfdoctor.attribution.share import DEVICE_WAIT, LAUNCHING, STAGING
from perfdoctor.causes import INPUT_PREPROCESSING, MODEL_COMPUTE, PYTHON_OVERHEAD, UNATTRIBUTED
from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.settings import has_loader
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import AFTERWARDS, PREPARES, TRAINING_PHASES, CodeLocation
from perfdoctor.timeline.job import JobTimeline

SPIN = "spin"

# Which cause each class of machine code counts for.
_CAUSES = {
    "interpreter": PYTHON_OVERHEAD,
    "dispatch": PYTHON_OVERHEAD,
    "kernel": MODEL_COMPUTE,
    "spin": SPIN,
    # Decoders, compressors and array libraries: a step of torch's has no use for them.
    "library": INPUT_PREPROCESSING,
    IN_STEP: PYTHON_OVERHEAD,
    WAITS: DEVICE_WAIT,
    LAUNCHES: LAUNCHING,
    "copy": STAGING,
}

# What machine code shows by itself: torch's kernels and the barriers of their pool.
_PHASELESS = (MODEL_COMPUTE, SPIN, DEVICE_WAIT)

# Where a loop of the job's own does something besides calling the model.
_OWN_CODE = ("other", PREPARES, AFTERWARDS)

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
        located: it is known where in its code the process is; if not, neither is what its Python code is for.
        on_gpu: the process computes on a GPU.
    """

    by_phase: Mixes
    interpreter: float | None = None
    libraries: float | None = None
    held_up: Mixes = field(default_factory=dict)
    undisturbed: Mixes = field(default_factory=dict)
    located: bool = True
    on_gpu: bool = False

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
        # Without a look at the machine code, a step's own phases count as arithmetic, the rest as the interpreter's.
        return {MODEL_COMPUTE if phase in TRAINING_PHASES else PYTHON_OVERHEAD: 1.0}


def read_code_mix(job: JobTimeline, pid: int) -> CodeMix:
    """Measures the mix of one trainer's main thread."""
    located, on_gpu = job.locator.is_known(pid), job.gpus.used_by(pid)
    undisturbed, held_up = count_code(job, pid)
    both = {phase: counts + held_up[phase] for phase, counts in undisturbed.items()}
    # With a DataLoader, a loop prepares no more than a rest itself.
    calls_only = has_loader(job, {pid})
    claimed = CLAIMED if calls_only else CLAIMED | {PREPARES}
    if is_blurred(job, pid):
        running = running_by_phase(job, pid)
        undisturbed, held_up, both = (share_out(counts, running, claimed) for counts in (undisturbed, held_up, both))
        around = both["forward"] + both["other"]
        after = Amounts({phase: running.get(phase, 0.0) for phase in _OWN_CODE}).fractions().get(AFTERWARDS, 0.0)
        libraries = _libraries(around, after * both[AFTERWARDS]["library"])
        mixes = [_mixes(counts, on_gpu=on_gpu) for counts in (both, held_up, undisturbed)]
        return CodeMix(mixes[0], _interpreter(around), libraries, mixes[1], mixes[2], on_gpu=on_gpu)
    if any(both[phase]["library"] for phase in TRAINING_PHASES):
        wrong = misplaced(both, running_by_phase(job, pid))
        undisturbed, held_up, both = (mark_in_step(counts, wrong) for counts in (undisturbed, held_up, both))
    around = sum((counts for phase, counts in both.items() if phase not in claimed), Counter())
    mixes = [_mixes(counts, calls_only, on_gpu=on_gpu) for counts in (both, held_up, undisturbed)]
    libraries = _libraries(around, both[AFTERWARDS]["library"])
    return CodeMix(mixes[0], _interpreter(around), libraries, mixes[1], mixes[2], located, on_gpu)


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
    if on_gpu:
        by_phase = {phase: with_device(counts) for phase, counts in by_phase.items()}
    mixes = {phase: mix for phase, counts in by_phase.items() if (mix := _fractions(counts, phase))}
    if calls_only is not None and PREPARES in mixes:
        kept = (PYTHON_OVERHEAD, LAUNCHING, SPIN, DEVICE_WAIT, STAGING) if calls_only else (SPIN, DEVICE_WAIT, STAGING)
        found = {cause: part for cause, part in mixes[PREPARES].items() if cause in kept}
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
