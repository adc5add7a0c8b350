"""A share of an instant, and what several classifiers make of one: running threads, whole instants, equal parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from perfdoctor.attribution.storage_causes import WRITTEN
from perfdoctor.causes import (
    CHECKPOINT_WRITE,
    DATA_TRANSFER,
    GIL_CONTENTION,
    INPUT_PREPROCESSING,
    MODEL_COMPUTE,
    PYTHON_OVERHEAD,
    UNATTRIBUTED,
)
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import PREPARES, UNKNOWN, CodeLocation
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.threads import ThreadState

# What the host of a GPU does, as long as it is not known what the GPU does meanwhile (``attribution.gpu`` settles it):
# it waits for the device, in front of the model's call or elsewhere; is in the driver without a sign that it waits for
# results (it waits for room in the launch queue, or launches); gives the device work; copies in its own memory, as the
# driver does with what is pageable; or lets the kernel allocate and free the device's memory.
DEVICE_WAIT = "wait for device"
INPUT_WAIT = "wait for device with input"
IN_DRIVER = "in driver"
LAUNCHING = "launching"
STAGING = "copy in memory"
MAPPING = "device memory in kernel"


@dataclass(frozen=True, slots=True)
class Share:
    """A share of an instant.

    Attributes:
        weight: 0 to 1; the shares of an instant sum to 1.
        rank: the rank in which the cause lies, if the wait was followed to another.
        target: file, socket … that it is about.
        line: source line of the job's own code.
        awaited: a trainer waits for its loader's workers to be through with it.
        copying: it goes into pages that were shared with a process since that was forked.
        beside: it is arithmetic on tensors that the training does without.
    """

    cause: str
    weight: float
    rank: int | None = None
    target: str = ""
    line: str = ""
    awaited: bool = False
    copying: bool = False
    beside: bool = False


Shares = list[Share]


# The target of a share in which a thread lets time pass, as it asked for, and waits for nothing else.
SLEEP = "sleep"


def all_of(cause: str, location: CodeLocation, target: str = "") -> Shares:
    """A whole instant that goes to one cause."""
    return [Share(cause, 1.0, target=target, line=location.line)]


def unattributed(location: CodeLocation) -> Shares:
    """An instant that nothing seen explains."""
    return all_of(UNATTRIBUTED, location)


def at_location(cause: str, location: CodeLocation) -> str:
    """What a cause counts for at a location: in front of the model's call, waits for the device are for its input."""
    with_input = location.detail == PREPARES or location.phase == "transfer"
    return INPUT_WAIT if cause in (DEVICE_WAIT, IN_DRIVER) and with_input else cause


def behind_gil(job: JobTimeline, pid: int, time_ns: int) -> tuple[str, str]:
    """Why a main thread lacks the GIL: for what is logged or saved by the thread that holds it, or for that one alone.

    Returns:
        The cause, and where in the job's own code the holder is; "" if not seen.
    """
    holder = job.gil.other_holder(pid, time_ns)
    thread = None if holder is None else job.threads.by_tid.get(holder)
    if thread is None:
        return GIL_CONTENTION, ""
    nearest = next(job.locator.near(thread, time_ns), UNKNOWN)
    return WRITTEN.get(nearest.phase, GIL_CONTENTION), job.locator.line_of(thread, time_ns)


def arithmetic(location: CodeLocation) -> str:
    """What arithmetic on tensors counts for at a location."""
    return INPUT_PREPROCESSING if location.detail == PREPARES else MODEL_COMPUTE


def scaled(shares: Iterable[Share], factor: float) -> Shares:
    """The same shares with other weights."""
    return [replace(share, weight=share.weight * factor) for share in shares]


def equally(several: Iterable[Shares]) -> Shares:
    """The shares of several who each have an equal part of an instant."""
    found = list(several)
    return found[0] if len(found) == 1 else [share for shares in found for share in scaled(shares, 1 / len(found))]


def with_objects(causes: Mapping[str, float], part: float) -> dict[str, float]:
    """What prepares a batch, cause to weight, of which a part takes apart the objects that it was handed over as."""
    found: Amounts[str] = Amounts()
    for cause, weight in causes.items():
        moved = weight * part if cause in (INPUT_PREPROCESSING, PYTHON_OVERHEAD) else 0.0
        found[cause] += weight - moved
        found[DATA_TRANSFER] += moved
    return {cause: weight for cause, weight in found.items() if weight}


def running(
    job: JobTimeline,
    pid: int,
    state: ThreadState,
    time_ns: int,
    causes: Mapping[str, float],
    line: str,
    *,
    in_step: bool = False,
) -> Shares:
    """A runnable thread: what it computes, and for the time that it did not get a CPU, why not.

    What the kernel works on storage in its name, mapping pages or copying what is saved, counts as what it is for.

    Args:
        job: the job.
        pid: the thread's process.
        state: the thread at the instant.
        time_ns: the instant.
        causes: what it computes, cause to weight, summing to 1.
        line: where in the job's own code it is.
        in_step: it is in a phase of training, which saves nothing: what the kernel works there has other reasons.
    """
    delay = state.delay_fraction
    why = job.cpu.delay_parts(pid, time_ns) if delay >= thresholds.RUN_QUEUE_DELAY else {}
    kernel, kernel_cause = job.storage.at(pid, time_ns)
    if in_step and kernel_cause == CHECKPOINT_WRITE:
        kernel, kernel_cause = 0.0, ""
    work = 1 - delay * sum(why.values())
    weights = Amounts({cause: weight * work * (1 - kernel) for cause, weight in causes.items()})
    if kernel_cause:
        weights[kernel_cause] += work * kernel
    shares = [Share(cause, weight, line=line) for cause, weight in weights.items() if weight > 0]
    taken = [Share(cause, weight * delay) for cause, weight in why.items() if weight > 0]
    return [*shares, *at_their_lines(job, pid, time_ns, taken)]


def at_their_lines(job: JobTimeline, pid: int, time_ns: int, shares: Iterable[Share]) -> Shares:
    """The shares of whoever is on the CPU instead of a thread, which is at no line of that thread's.

    Those that prepare its process's input are at lines of their own.
    """
    found: Shares = []
    for share in shares:
        lines = _lines_of_suppliers(job, pid, time_ns) if share.cause == INPUT_PREPROCESSING else []
        found += [replace(share, weight=share.weight / len(lines), line=line) for line in lines]
        if not lines:
            found.append(replace(share, line="") if share.line else share)
    return found


def _lines_of_suppliers(job: JobTimeline, pid: int, time_ns: int) -> list[str]:
    """The lines at which those that prepare a process's input are at work at an instant."""
    found = []
    for supplier in job.processes.suppliers_of(pid):
        if supplier.alive_at(time_ns):
            state = job.threads.main_at(supplier.pid, time_ns)
            line = job.locator.locate(supplier.pid, time_ns, state).line if state.is_runnable else ""
            found += [line] if line else []
    return found
