"""What a main thread computes in each phase: the model's arithmetic, or interpreter and dispatch around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from perfdoctor.amounts import Amounts
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
        interpreter: of interpreter and dispatch together, the interpreter's part; None where too little was sampled.
    """

    by_phase: Mapping[str, Mapping[str, float]]
    interpreter: float | None = None

    def causes(self, phase: str) -> Mapping[str, float]:
        """What running in a phase counts for, ``spin`` included, summing to 1."""
        if phase in self.by_phase:
            return self.by_phase[phase]
        # Without a look at the machine code, a step's own phases count as arithmetic, the rest as the interpreter's.
        return {"cpu.model_compute" if phase in TRAINING_PHASES else "cpu.python_overhead": 1.0}


def read_code_mix(scene: Scene, pid: int) -> CodeMix:
    """Measures the mix of one trainer's main thread."""
    symbols = {(row.image, row.offset): row.symbol for row in scene.recording.rows(Symbol)}
    by_phase: dict[str, Counter[str]] = {}
    for row in scene.recording.rows(CodeSample):
        if row.tid != pid or scene.timelines.interpreter_at(pid, row.time_ns)[1]:
            continue
        phase = scene.place_at(pid, row.time_ns, _RUNNING).phase
        kind = classify(row.image, row.symbol or symbols.get((row.image, row.offset), ""))
        by_phase.setdefault(phase, Counter())[kind] += 1
    unclaimed = sum((counts for phase, counts in by_phase.items() if phase not in CLAIMED), Counter[str]())
    if scene.stack_changes_per_s(pid) > BLURRED_PER_S:
        running = _running_by_phase(scene, pid)
        claimed = sum(part for phase, part in running.items() if phase in CLAIMED)
        unclaimed = _without_claimed(sum(by_phase.values(), Counter()), claimed)
        in_step = sum(part for phase, part in running.items() if phase in TRAINING_PHASES)
        step, own = _apart(unclaimed, 1 - in_step / (1 - claimed) if claimed < 1 else 0.0)
        by_phase = {phase: step if phase in TRAINING_PHASES else own for phase in PHASES}
    after = _after_the_model(scene, pid)
    mixes = {phase: _fractions(counts, after) for phase, counts in by_phase.items()}
    calls = unclaimed["interpreter"] + unclaimed["dispatch"]
    interpreter = unclaimed["interpreter"] / calls if calls >= MIN_SAMPLES else None
    return CodeMix({phase: mix for phase, mix in mixes.items() if mix}, interpreter)


def _running_by_phase(scene: Scene, pid: int) -> dict[str, float]:
    """A main thread's running time by phase, in fractions."""
    timeline = scene.timelines.main(pid)
    counts = Amounts[str]()
    for time_ns in timeline.times_ns.tolist() if timeline is not None else ():
        moment = scene.main_at(pid, time_ns)
        if moment.is_runnable:
            counts[scene.place_at(pid, time_ns, moment).phase] += 1
    return counts.fractions()


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
    if min(in_own, counts.total() - in_own) < MIN_SAMPLES:
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

    That is what input and saving are made of, and taking it there errs on the side of calling a job sound.
    """
    left = Counter(counts)
    to_take = claimed * counts.total()
    for kind in ("library", "interpreter", "dispatch", "kernel"):
        taken = min(left[kind], to_take)
        left[kind] -= taken  # type: ignore[assignment]
        to_take -= taken
    return left


def _after_the_model(scene: Scene, pid: int) -> float:
    """Of the time in the job's own code, the part that comes after the model was called: it prepares no input.

    Told in the function that holds the loop, by the order of its lines.
    """
    track = scene.stacks.main_track(pid)
    if track is None:
        return 0.0
    seen = Counter(number for number in track.stacks.tolist() if number >= 0)
    calls: dict[tuple[str, str], int] = {}
    for number in seen:
        if scene.stacks.places[number].phase == "forward":
            for frame in scene.stacks.frames[number]:
                key = frame.file, frame.function
                calls[key] = min(frame.line, calls.get(key, frame.line))
    own = after = 0
    for number, times in seen.items():
        if scene.stacks.places[number].phase == "other":
            shared = [frame for frame in scene.stacks.frames[number] if (frame.file, frame.function) in calls]
            own += times
            after += times * bool(shared and shared[-1].line > calls[shared[-1].file, shared[-1].function])
    return after / own if own else 0.0


def _fractions(counts: Counter[str], after: float) -> dict[str, float]:
    """Counts of code kinds as fractions by cause; {} where they say too little.

    Args:
        counts: samples by kind of code.
        after: what part of the libraries' work prepares no input but uses the model's output, metrics for instance.
    """
    known = counts.total() - counts["other"]
    if known < MIN_SAMPLES or counts["other"] > MAX_OTHER * counts.total():
        return {}
    found = Amounts[str]()
    for kind, count in counts.items():
        if kind == "library":
            found[_CAUSES[kind]] += count * (1 - after)
            found["cpu.python_overhead"] += count * after
        elif kind != "other":
            found[_CAUSES[kind]] += count
    return {cause: count / known for cause, count in found.items()}
