"""A main thread's samples of machine code by phase, also where steps are too short to know the phase of one sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from perfdoctor.attribution.device_host import QUEUED
from perfdoctor.attribution.machine_code_samples import RUNNING, samples_of_training
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import PHASES
from perfdoctor.knowledge.symbols import DRIVERS
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import AFTERWARDS, ALLOCATOR, HOOK, PREPARES, TRAINING_PHASES, CodeLocation
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.stand_ins import ENOUGH, drawn, stand_ins

# Libraries' work that can only have been called by the model itself: by its hooks, or to match targets.
IN_STEP = "library in step"

_ALL = (*PHASES, PREPARES, AFTERWARDS, ALLOCATOR)
_OF_WAITS = ("clock", QUEUED, "yield")
# Samples by kind of code (``perfdoctor.knowledge.symbols``), for each phase.
ByPhase = dict[str, Counter[str]]


def phase_of(location: CodeLocation) -> str:
    """What samples are counted by: the phase and, in a loop of the job's own, the side of the model's call.

    A call of the device's allocator is one by itself: nothing but the driver runs in it.

    A hook that only reads out does what the loop might do afterwards.
    """
    if location.detail == HOOK:
        return AFTERWARDS
    return location.detail if location.detail in (PREPARES, AFTERWARDS, ALLOCATOR) else location.phase


@dataclass(frozen=True, slots=True)
class CountedCode:
    """Samples of a main thread.

    Attributes:
        all: of all of the time.
        held_up: of times in which a thread of the intra-op pool lacks a CPU.
        undisturbed: of those in which none does.
    """

    all: ByPhase
    held_up: ByPhase
    undisturbed: ByPhase

    def each(self, change: Callable[[ByPhase], ByPhase]) -> CountedCode:
        """The samples after the same change to each of the three."""
        return CountedCode(change(self.all), change(self.held_up), change(self.undisturbed))


def count_code(job: JobTimeline, pid: int) -> CountedCode:
    """Counts a main thread's samples while it trains, outside of the garbage collector."""
    undisturbed: ByPhase = {phase: Counter() for phase in _ALL}
    held_up: ByPhase = {phase: Counter() for phase in _ALL}
    code = samples_of_training(job, pid)
    times, kinds = code.times_ns.tolist(), code.kinds.tolist()
    for number, count in stand_ins([1] * len(times), kinds, ENOUGH).items():
        time_ns, kind = times[number], kinds[number]
        if job.gil.is_collecting(pid, time_ns):
            continue
        phase = phase_of(job.locator.locate(pid, time_ns, RUNNING, in_c=kind != "interpreter"))
        found = held_up if job.kinds.pool_delay(pid, time_ns) >= thresholds.SURE_DELAY else undisturbed
        found[phase][_in_phase(kind, phase)] += count  # type: ignore[assignment]
    return CountedCode({phase: counts + held_up[phase] for phase, counts in undisturbed.items()}, held_up, undisturbed)


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
    taken, calling = sum(part for phase, part in running.items() if phase in claimed), running.get(ALLOCATOR, 0.0)
    whole = sum(by_phase.values(), Counter[str]())
    unclaimed = _without_claimed(whole, taken * whole.total())
    unclaimed, taken = _without_calls(unclaimed, calling * whole.total()), taken + calling
    in_step = sum(part for phase, part in running.items() if phase in TRAINING_PHASES)
    step, own = _apart(unclaimed, 1 - in_step / (1 - taken) if taken < 1 else 0.0)
    open_ones = (phase for phase in _ALL if phase not in claimed and phase != ALLOCATOR)
    shared = {phase: step if phase in TRAINING_PHASES else own for phase in open_ones}
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


def _without_claimed(counts: Counter[str], to_take: float) -> Counter[str]:
    """Takes so many samples, those of claimed phases, out of all, library and interpreter code first.

    That is what input and saving are made of, and taking it there errs on the side of finding no bottleneck.
    """
    left = Counter(counts)
    for kind in ("library", "interpreter", "dispatch", "kernel"):
        taken = min(left[kind], to_take)
        left[kind] -= taken  # type: ignore[assignment]
        to_take -= taken
    return left


def _without_calls(counts: Counter[str], to_take: float) -> Counter[str]:
    """Takes so many samples, those of calls of the allocator, out of what waits and drives; what launches stays."""
    driver = sum(counts[kind] for kind in DRIVERS)
    spare = max(0.0, 1 - thresholds.DRIVER_PER_DISPATCH * counts["dispatch"] / driver) if driver else 0.0
    found = {kind: float(counts[kind]) for kind in _OF_WAITS} | {kind: spare * counts[kind] for kind in DRIVERS}
    part = min(1.0, to_take / total) if (total := sum(found.values())) else 0.0
    left = {kind: count - part * found.get(kind, 0.0) for kind, count in counts.items()}
    return Counter(left)


def as_long_as_they_run(by_phase: ByPhase, running: Mapping[str, float]) -> ByPhase:
    """The samples of phases of which each was given those of all, by how long each runs."""
    return {
        phase: Counter({kind: count * running.get(phase, 0.0) for kind, count in counts.items()})
        for phase, counts in by_phase.items()
    }
