"""What the running time of a trainer's main thread goes to: what it computes, and why it lacks a CPU meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

from perfdoctor.attribution.forks import after_forks
from perfdoctor.attribution.habits import LOADER_WAITS, Context
from perfdoctor.attribution.machine_code_by_phase import phase_of
from perfdoctor.attribution.mix_of_phases import SPIN
from perfdoctor.attribution.share import (
    MAPPING,
    Share,
    Shares,
    arithmetic,
    at_location,
    at_their_lines,
    behind_gil,
    running,
    scaled,
    with_objects,
)
from perfdoctor.attribution.storage_causes import WRITTEN
from perfdoctor.causes import (
    BANDWIDTH,
    DATA_TRANSFER,
    GARBAGE_COLLECTION,
    INPUT_PREPROCESSING,
    MEMORY_PRESSURE,
    PYTHON_OVERHEAD,
    WORKER_STARTUP,
)
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import ALLOCATOR, POOL, PREPARES, TRAINING_PHASES
from perfdoctor.timeline.job import Observation

Causes = Mapping[str, float]


def running_trainer(context: Context, seen: Observation) -> Shares:
    """A trainer that runs: what it computes, why it lacks a CPU, and what switching the GIL or a fork costs it."""
    location, habits = seen.location, context.habits[seen.pid]
    cause = _cause_of(seen, on_gpu=habits.code.on_gpu)
    if cause == DATA_TRANSFER and not context.job.processes.suppliers_of(seen.pid):
        cause = INPUT_PREPROCESSING  # without another process nothing is handed over
    causes, queued = ({cause: 1.0}, Amounts[str]()) if cause else _at_barrier(context, seen)
    if location.detail == PREPARES:
        causes = with_objects(causes, habits.taking_apart)
    causes = Amounts.summed({at_location(cause, location): weight} for cause, weight in causes.items())
    in_step = location.phase in TRAINING_PHASES
    shares = running(context.job, seen.pid, seen, seen.time_ns, {**causes, **queued}, location.line, in_step=in_step)
    shares = [share for share in shares if share.cause not in queued] + at_their_lines(
        context.job, seen.pid, seen.time_ns, (share for share in shares if share.cause in queued)
    )
    shares = after_forks(shares, habits.forks, seen.time_ns, causes)
    mapping = habits.code.mapping.get(phase_of(location), 0.0)
    if habits.gil_switching:
        cause, line = behind_gil(context.job, seen.pid, seen.time_ns)
        shares = _with_part(shares, habits.gil_switching, cause, line)
    return _with_part(shares, mapping, MAPPING, location.line) if mapping else shares


def _with_part(shares: Shares, part: float, cause: str, line: str) -> Shares:
    """The same shares, of which another cause takes a part."""
    return [*scaled(shares, 1 - part), Share(cause, part, line=line)]


def _cause_of(seen: Observation, *, on_gpu: bool) -> str:
    """What all that runs at a location is for; "" where its machine code says more."""
    location = seen.location
    if seen.collecting and location.detail not in LOADER_WAITS:
        # While a batch is unpickled, its many objects are what the collector is called for.
        return GARBAGE_COLLECTION
    if location.phase in WRITTEN:
        return WRITTEN[location.phase]
    if on_gpu and location.detail == "collective":
        return ""  # it gives the exchange to the GPU, or waits for that
    if on_gpu and location.detail == ALLOCATOR:
        return MEMORY_PRESSURE
    if location.detail in _BY_DETAIL:
        return _BY_DETAIL[location.detail]
    return INPUT_PREPROCESSING if location.phase == "data" else _BY_DETAIL_OUTSIDE_DATA.get(location.detail, "")


_BY_DETAIL = {"loader start": WORKER_STARTUP, POOL: WORKER_STARTUP, **dict.fromkeys(LOADER_WAITS, DATA_TRANSFER)}
# Whether all ranks wait for bytes or for messages is determined at the end, from the whole recording.
_BY_DETAIL_OUTSIDE_DATA = {"compile": PYTHON_OVERHEAD, "profile": PYTHON_OVERHEAD, "collective": BANDWIDTH}


def _at_barrier(context: Context, seen: Observation) -> tuple[Causes, Causes]:
    """Spinning at a barrier is waiting for the pool's other threads: for those that compute, or that get no CPU.

    Returns:
        What the thread computes, and why those that it waits for get no CPU: cause to weight, summing to 1.
    """
    job, location = context.job, seen.location
    lacking = job.kinds.pool_delay(seen.pid, seen.time_ns)
    mix = context.habits[seen.pid].code.causes(location, held_up=lacking >= thresholds.SURE_DELAY)
    spin = mix.get(SPIN, 0.0)
    if not spin:
        return mix, {}
    # The parts of a pool are alike: nearly all spinning is for a thread that got no CPU, if there is one.
    delay = min(1.0, lacking / thresholds.SURE_DELAY)
    why = job.cpu.delay_parts(seen.pid, seen.time_ns)
    causes = Amounts({cause: weight for cause, weight in mix.items() if cause != SPIN})
    causes[arithmetic(location)] += spin * (1 - delay * sum(why.values()))
    queued = Amounts({cause: spin * delay * weight for cause, weight in why.items() if weight > 0})
    for cause in set(queued) & set(causes):
        queued[cause] += causes.pop(cause)
    return causes, queued
