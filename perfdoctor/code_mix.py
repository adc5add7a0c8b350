"""What a main thread computes in each phase: the model's arithmetic, or interpreter and dispatch around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfdoctor.machine_code import classify
from perfdoctor.phases import PHASES, TRAINING_PHASES
from perfdoctor.samples import CodeSample, Symbol
from perfdoctor.scene import Scene
from perfdoctor.timelines import Moment

# Fewer samples than this in a phase say nothing about it.
MIN_SAMPLES = 20
_RUNNING = Moment("R", None, "", 1.0, 0.0)

# Above this many changes of the sampled stack per second, steps are so short that a sample of machine code cannot be
# given to a phase by its time: nearly every stack sample (20 per second) then differs from the one before.
BLURRED_PER_S = 7.0
# Phases that have a cause of their own, whatever is computed in them.
CLAIMED = frozenset(("data", "saving", "logging"))
# Where more than this fraction of a phase's samples cannot be told (no symbols: the recorder was killed), the rest
# would mislead.
MAX_OTHER = 0.2
SPIN = "spin"
# A thread of the pool that lacks a CPU for this fraction of the time in which it wants one explains all spinning at a
# barrier.
SURE_DELAY = 0.25

# Which cause each class of machine code counts for.
_CAUSES = {
    "interpreter": "cpu.python_overhead",
    "dispatch": "cpu.python_overhead",
    "kernel": "cpu.model_compute",
    "spin": SPIN,
    # Decoders, compressors and array libraries: a step of torch's has no use for them.
    "library": "cpu.input_preprocessing",
}


@dataclass(frozen=True, slots=True)
class CodeMix:
    """Per phase, cause to fraction of its running time; phases that were not sampled enough are absent.

    ``spin`` stands beside the causes: waiting at a barrier for other threads of the pool, with a busy CPU.

    Attributes:
        held_up: the same while a thread of the arithmetic's pool lacks a CPU. The others spin then, and do not before
            and after, so a neighbour that comes and goes costs more than a mean over all of the time would tell.
        undisturbed: the same while none does.
        interpreter: of interpreter and dispatch together, the interpreter's part; None where too little was sampled.
    """

    by_phase: Mapping[str, Mapping[str, float]]
    interpreter: float | None = None
    held_up: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    undisturbed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def causes(self, phase: str, *, held_up: bool) -> Mapping[str, float]:
        """What running in a phase counts for, ``spin`` included, summing to 1."""
        then = self.held_up if held_up else self.undisturbed
        for mixes in (then, self.by_phase):
            if phase in mixes:
                return mixes[phase]
        # Without a look at the machine code, a step's own phases count as arithmetic, the rest as the interpreter's.
        return {"cpu.model_compute" if phase in TRAINING_PHASES else "cpu.python_overhead": 1.0}


def read_code_mix(scene: Scene, pid: int) -> CodeMix:
    """Measures the mix of one trainer's main thread."""
    symbols = {(row.image, row.offset): row.symbol for row in scene.recording.rows(Symbol)}
    counted: dict[bool, dict[str, Counter[str]]] = {False: {}, True: {}}
    for row in scene.recording.rows(CodeSample):
        if row.tid != pid or scene.timelines.interpreter_at(pid, row.time_ns)[1]:
            continue
        phase = scene.place_at(pid, row.time_ns, _RUNNING).phase
        kind = classify(row.image, row.symbol or symbols.get((row.image, row.offset), ""))
        counted[pool_delay(scene, pid, row.time_ns) >= SURE_DELAY].setdefault(phase, Counter())[kind] += 1
    blurred = scene.stack_changes_per_s(pid) > BLURRED_PER_S
    claimed = _claimed_fraction(scene, pid) if blurred else None
    undisturbed, held_up = counted[False], counted[True]
    both = {phase: undisturbed.get(phase, Counter()) + held_up.get(phase, Counter()) for phase in PHASES}
    unclaimed = _unclaimed(both, claimed)
    calls = unclaimed["interpreter"] + unclaimed["dispatch"]
    return CodeMix(
        _mixes(both, claimed),
        interpreter=unclaimed["interpreter"] / calls if calls >= MIN_SAMPLES else None,
        held_up=_mixes(held_up, claimed),
        undisturbed=_mixes(undisturbed, claimed),
    )


def pool_delay(scene: Scene, pid: int, time_ns: int) -> float:
    """Of the time in which a thread of the arithmetic's pool wants a CPU, the fraction that it lacks one; the worst."""
    pool = [thread.at(time_ns) for thread in scene.pool_threads(pid)]
    return max((helper.delay_fraction for helper in pool if helper.is_runnable), default=0.0)


def _mixes(by_phase: Mapping[str, Counter[str]], claimed: float | None) -> dict[str, dict[str, float]]:
    """Per phase, cause to fraction; ``claimed`` where all phases have the same, as in ``_unclaimed``."""
    if claimed is not None:
        by_phase = dict.fromkeys(PHASES, _unclaimed(by_phase, claimed))
    mixes = {phase: _fractions(counts) for phase, counts in by_phase.items()}
    return {phase: mix for phase, mix in mixes.items() if mix}


def _unclaimed(by_phase: Mapping[str, Counter[str]], claimed: float | None) -> Counter[str]:
    """What was sampled outside of phases that have a cause of their own.

    Args:
        by_phase: what was sampled.
        claimed: which fraction of the running time is in such phases, where a sample cannot be given to a phase by its
            time.
    """
    if claimed is not None:
        return _without_claimed(sum(by_phase.values(), Counter()), claimed)
    return sum((counts for phase, counts in by_phase.items() if phase not in CLAIMED), Counter())


def _claimed_fraction(scene: Scene, pid: int) -> float:
    """Fraction of a main thread's running time in phases whose cause is known without looking at machine code."""
    timeline = scene.timelines.main(pid)
    claimed = running = 0
    for time_ns in timeline.times_ns.tolist() if timeline is not None else ():
        moment = scene.main_at(pid, time_ns)
        if moment.is_runnable:
            running += 1
            claimed += scene.place_at(pid, time_ns, moment).phase in CLAIMED
    return claimed / running if running else 0.0


def _without_claimed(counts: Counter[str], claimed: float) -> Counter[str]:
    """Takes the claimed phases' part out of all samples, library and interpreter code first.

    That is what input and saving are made of, and taking it there errs on the side of calling a job sound.
    """
    left = Counter(counts)
    to_take = claimed * counts.total()
    for kind in ("library", "interpreter", "dispatch", "kernel"):
        taken = min(left[kind], to_take)
        left[kind] -= taken  # type: ignore[assignment]
        to_take -= taken
    return left


def _fractions(counts: Counter[str]) -> dict[str, float]:
    """Counts of code kinds as fractions by cause; {} where they say too little."""
    known = counts.total() - counts["other"]
    if known < MIN_SAMPLES or counts["other"] > MAX_OTHER * counts.total():
        return {}
    found: Counter[str] = Counter()
    for kind, count in counts.items():
        if kind != "other":
            found[_CAUSES[kind]] += count
    return {cause: count / known for cause, count in found.items()}
