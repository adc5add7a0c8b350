"""What a main thread computes in each phase: the model's arithmetic, or the interpreter and operator dispatch around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from perfdoctor.machine_code import classify
from perfdoctor.phases import TRAINING_PHASES
from perfdoctor.samples import CodeSample, Symbol
from perfdoctor.scene import Scene
from perfdoctor.timelines import Moment

# Fewer samples than this in a phase say nothing about it.
MIN_SAMPLES = 20
_RUNNING = Moment("R", None, "", 1.0, 0.0)

# In a step of some milliseconds, only a stack taken this close to an instant tells the phase at that instant.
SURE_NS = 4_000_000
# Where more than this fraction of a phase's samples cannot be told (no symbols: the recorder was killed), the rest would
# mislead.
MAX_OTHER = 0.2
SPIN = "spin"
_OTHER = "other"

# Which cause each class of machine code counts for, by whether the phase is one of a training step.
_IN_STEP = {
    "interpreter": "cpu.python_overhead",
    "dispatch": "cpu.python_overhead",
    "kernel": "cpu.model_compute",
    "spin": SPIN,
    "library": "cpu.model_compute",
}
_OUTSIDE = {**_IN_STEP, "library": "cpu.input_preprocessing"}


@dataclass(frozen=True, slots=True)
class CodeMix:
    """Per phase, cause to fraction of its running time; phases that were not sampled enough are absent.

    ``spin`` stands beside the causes: waiting at a barrier for other threads of the pool, with a busy CPU.
    """

    by_phase: Mapping[str, Mapping[str, float]]

    def causes(self, phase: str) -> Mapping[str, float]:
        """What running in a phase counts for, ``spin`` included, summing to 1."""
        if phase in self.by_phase:
            return self.by_phase[phase]
        # Without a look at the machine code, a step's own phases count as arithmetic, the rest as the interpreter's.
        return {"cpu.model_compute" if phase in TRAINING_PHASES else "cpu.python_overhead": 1.0}


def read_code_mix(scene: Scene, pid: int) -> CodeMix:
    """Measures the mix of one trainer's main thread."""
    samples = scene.recording.table(CodeSample)
    samples = samples[samples["tid"] == pid]
    symbols = {(row.image, row.offset): row.symbol for row in scene.recording.table(Symbol).itertuples()}
    near: dict[str, Counter[str]] = {}
    counts: dict[str, Counter[str]] = {}
    for row in samples.itertuples():
        time_ns = int(row.time_ns)
        if scene.timelines.interpreter_at(pid, time_ns)[1]:
            continue
        phase = scene.place_at(pid, time_ns, _RUNNING).phase
        kind = classify(row.image, row.symbol or symbols.get((row.image, row.offset), ""))
        cause = (_IN_STEP if phase in TRAINING_PHASES else _OUTSIDE).get(kind, _OTHER)
        counts.setdefault(phase, Counter())[cause] += 1
        if scene.stack_distance(pid, time_ns) <= SURE_NS:
            near.setdefault(phase, Counter())[cause] += 1
    mixes = {phase: _fractions(near.get(phase, Counter())) or _fractions(found) for phase, found in counts.items()}
    return CodeMix({phase: mix for phase, mix in mixes.items() if mix})


def _fractions(counts: Counter[str]) -> dict[str, float]:
    """Counts as fractions; {} where they say too little."""
    known = counts.total() - counts[_OTHER]
    if known < MIN_SAMPLES or counts[_OTHER] > MAX_OTHER * counts.total():
        return {}
    return {cause: count / known for cause, count in counts.items() if cause != _OTHER}
