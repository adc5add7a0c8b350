"""Samples of a main thread's machine code, counted by the phase in which they were taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import PHASES
from perfdoctor.knowledge.symbols import classify
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import AFTERWARDS, PREPARES, TRAINING_PHASES, CodeLocation
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.threads import ThreadState

# Phases that have a cause of their own, whatever is computed in them.
CLAIMED = frozenset(("data", "saving", "logging"))
_RUNNING = ThreadState("R", None, "", 1.0, 0.0)

# Libraries' work that can only have been called by the model itself: by its hooks, or to match targets.
IN_STEP = "library in step"

# Kinds of code that say something of the host of a GPU only: as what they count elsewhere, and what they are there.
_ELSEWHERE = {"driver": "other", "clock": "other", "copy": "kernel"}
WAITS, LAUNCHES = "device wait", "launch"

_ALL = (*PHASES, PREPARES, AFTERWARDS)
# Samples by kind of code (``perfdoctor.knowledge.symbols``), for each phase.
ByPhase = dict[str, Counter[str]]


def phase_of(location: CodeLocation) -> str:
    """What samples are counted by: the phase and, in a loop of the job's own, the side of the model's call."""
    return location.detail if location.detail in (PREPARES, AFTERWARDS) else location.phase


def count_code(job: JobTimeline, pid: int) -> tuple[ByPhase, ByPhase]:
    """Counts a main thread's samples outside of the garbage collector.

    Returns:
        Those of times in which no thread of the intra-op pool lacks a CPU, and those of all others.
    """
    undisturbed: ByPhase = {phase: Counter() for phase in _ALL}
    held_up: ByPhase = {phase: Counter() for phase in _ALL}
    on_gpu = job.gpus.used_by(pid)
    for row in job.code:
        if row.tid != pid or job.gil.is_collecting(pid, row.time_ns):
            continue
        kind: str = classify(row.image, row.symbol)
        if not on_gpu:
            kind = _ELSEWHERE.get(kind, kind)
        phase = phase_of(job.locator.locate(pid, row.time_ns, _RUNNING, in_c=kind != "interpreter"))
        found = held_up if job.kinds.pool_delay(pid, row.time_ns) >= thresholds.SURE_DELAY else undisturbed
        found[phase][kind] += 1
    return undisturbed, held_up


def with_device(counts: Counter[str]) -> Counter[str]:
    """Splits what the host of a GPU runs into waiting for the device, launching work on it, and its own.

    A wait for the device spins: it runs in the driver, and asks for the time. Launching runs in the driver too, but not
    without torch's dispatcher, and it takes some interpreter. What exceeds these parts is a wait, or Python's own work.
    """
    launching = min(counts["driver"], thresholds.DRIVER_PER_DISPATCH * counts["dispatch"])
    called = counts["dispatch"] + launching
    calling = min(counts["interpreter"], thresholds.INTERPRETER_PER_LAUNCH * called)
    split = Counter(counts)
    split[WAITS] = counts["clock"] + counts["driver"] - launching  # type: ignore[assignment]
    split[LAUNCHES] = called + calling  # type: ignore[assignment]
    split["interpreter"] -= calling  # type: ignore[assignment]
    for kind in ("driver", "clock", "dispatch"):
        del split[kind]
    return split


def is_blurred(job: JobTimeline, pid: int) -> bool:
    """Whether steps are too short to know the phase of one sample."""
    return job.locator.changes_per_s(pid) > thresholds.BLURRED_STACKS_PER_S


def running_by_phase(job: JobTimeline, pid: int) -> dict[str, float]:
    """A main thread's running time by phase (``phase_of``), in fractions."""
    counts: Amounts[str] = Amounts()
    for time_ns in job.threads.main_times(pid):
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


def share_out(by_phase: Mapping[str, Counter[str]], running: Mapping[str, float], claimed: frozenset[str]) -> ByPhase:
    """Gives samples to phases of which each is too short to be met by a sample's time.

    Args:
        by_phase: samples by the phase of their times.
        running: the running time by phase, in fractions.
        claimed: phases that get none, since their cause is known.

    Returns:
        The same samples for all phases of training, and the same for all of the job's own code.
    """
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
