"""What a main thread computes in each phase: the model's arithmetic, or interpreter and dispatch around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from perfdoctor.amounts import Amounts
from perfdoctor.machine_code import classify
from perfdoctor.phases import AFTERWARDS, PHASES, PREPARES, TRAINING_PHASES, Place
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

# Code that prepares a step's input and spends more than half of its time on the interpreter and dispatch, and of that
# more than this on dispatch, is a loop over elements of tensors or tiny operators, not a costly preparation.
DISPATCHING = 0.3

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

    def causes(self, place: Place) -> Mapping[str, float]:
        """What running in a place counts for, ``spin`` included, summing to 1."""
        phase = _key(place)
        if phase in self.by_phase:
            return self.by_phase[phase]
        if phase == PREPARES:
            return {"cpu.input_preprocessing": 1.0}
        # Without a look at the machine code, a step's own phases count as arithmetic, the rest as the interpreter's.
        return {"cpu.model_compute" if phase in TRAINING_PHASES else "cpu.python_overhead": 1.0}


def _key(place: Place) -> str:
    """What samples are told apart by: the phase and, in a loop of the job's own, the side of the model's call."""
    return place.detail if place.detail in (PREPARES, AFTERWARDS) else place.phase


def read_code_mix(scene: Scene, pid: int) -> CodeMix:
    """Measures the mix of one trainer's main thread."""
    by_phase = _count_kinds(scene, pid)
    calls_only = _has_loader(scene, pid) or _dispatches(by_phase.get(PREPARES, Counter()))
    claimed = CLAIMED if calls_only else CLAIMED | {PREPARES}
    unclaimed = sum((counts for phase, counts in by_phase.items() if phase not in claimed), Counter[str]())
    blurred = scene.stack_changes_per_s(pid) > BLURRED_PER_S
    if blurred:
        unclaimed, by_phase = _share_out(sum(by_phase.values(), Counter()), _running_by_key(scene, pid), claimed)
    mixes = {phase: _fractions(counts, phase) for phase, counts in by_phase.items()}
    if PREPARES in mixes and not blurred:
        mixes[PREPARES] = _as_input(mixes[PREPARES], calls_only)
    calls = unclaimed["interpreter"] + unclaimed["dispatch"]
    interpreter = unclaimed["interpreter"] / calls if calls >= MIN_SAMPLES else None
    return CodeMix({phase: mix for phase, mix in mixes.items() if mix}, interpreter)


def _count_kinds(scene: Scene, pid: int) -> dict[str, Counter[str]]:
    """Samples of a main thread's machine code, counted by phase and kind."""
    symbols = {(row.image, row.offset): row.symbol for row in scene.recording.rows(Symbol)}
    by_phase: dict[str, Counter[str]] = {}
    for row in scene.recording.rows(CodeSample):
        if row.tid != pid or scene.timelines.interpreter_at(pid, row.time_ns)[1]:
            continue
        phase = _key(scene.place_at(pid, row.time_ns, _RUNNING))
        kind = classify(row.image, row.symbol or symbols.get((row.image, row.offset), ""))
        by_phase.setdefault(phase, Counter())[kind] += 1
    return by_phase


def _dispatches(counts: Counter[str]) -> bool:
    """Whether code that prepares the input is a loop of tiny operators."""
    calls = counts["interpreter"] + counts["dispatch"]
    return calls > 0.5 * (counts.total() - counts["other"]) and counts["dispatch"] > DISPATCHING * calls


def _has_loader(scene: Scene, pid: int) -> bool:
    """Whether a trainer's input comes from a DataLoader: its loop then prepares no more than a rest."""
    track = scene.stacks.main_track(pid)
    places = [] if track is None else [scene.stacks.places[number] for number in set(track.stacks.tolist()) - {-1}]
    return bool(scene.roles.workers_of(pid)) or any(place.phase == "data" for place in places)


def _as_input(mix: Mapping[str, float], calls_only: bool) -> dict[str, float]:
    """What code that prepares the input counts for.

    Args:
        mix: cause to fraction, as for any phase.
        calls_only: what runs around the arithmetic is a Python loop over a batch's elements, or tiny operators.
    """
    kept = ("cpu.python_overhead", SPIN) if calls_only else (SPIN,)
    found = {cause: part for cause, part in mix.items() if cause in kept}
    return {**found, "cpu.input_preprocessing": 1 - sum(found.values())} if mix else {}


def _share_out(
    counts: Counter[str], running: Mapping[str, float], claimed: frozenset[str]
) -> tuple[Counter[str], dict[str, Counter[str]]]:
    """Samples of machine code for phases of which each is too short to be met by a sample's time.

    Returns:
        All that no claimed phase accounts for, and the same by phase.
    """
    taken = sum(part for phase, part in running.items() if phase in claimed)
    unclaimed = _without_claimed(counts, taken)
    in_step = sum(part for phase, part in running.items() if phase in TRAINING_PHASES)
    step, own = _apart(unclaimed, 1 - in_step / (1 - taken) if taken < 1 else 0.0)
    phases = {*PHASES, PREPARES, AFTERWARDS} - claimed
    return unclaimed, {phase: step if phase in TRAINING_PHASES else own for phase in phases}


def _running_by_key(scene: Scene, pid: int) -> dict[str, float]:
    """A main thread's running time by phase and side of the model's call, in fractions."""
    timeline = scene.timelines.main(pid)
    counts = Amounts[str]()
    for time_ns in timeline.times_ns.tolist() if timeline is not None else ():
        moment = scene.main_at(pid, time_ns)
        if moment.is_runnable:
            counts[_key(scene.place_at(pid, time_ns, moment))] += 1
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


def _fractions(counts: Counter[str], phase: str) -> dict[str, float]:
    """Counts of code kinds in a phase as fractions by cause; {} where they say too little.

    What libraries compute from the model's output, metrics for instance, prepares no input.
    """
    known = counts.total() - counts["other"]
    if known < MIN_SAMPLES or counts["other"] > MAX_OTHER * counts.total():
        return {}
    found: Amounts[str] = Amounts()
    for kind, count in counts.items():
        if kind == "library" and phase == AFTERWARDS:
            found["cpu.python_overhead"] += count
        elif kind != "other":
            found[_CAUSES[kind]] += count
    return {cause: count / known for cause, count in found.items()}
