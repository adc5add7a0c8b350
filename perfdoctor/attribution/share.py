"""A share of an instant, and what several classifiers make of one: running threads, storage, nothing known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import PREPARES, CodeLocation
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.threads import ThreadState

# What the host of a GPU does, as long as it is not known what the GPU does meanwhile (``attribution.gpu`` settles it):
# it waits for the device, in front of the model's call or elsewhere; gives it work; or copies in its own memory, as the
# driver does with what is pageable.
DEVICE_WAIT = "wait for device"
INPUT_WAIT = "wait for device with input"
LAUNCHING = "launching"
STAGING = "copy in memory"


@dataclass(frozen=True, slots=True)
class Share:
    """A share of an instant.

    Attributes:
        weight: 0 to 1; the shares of an instant sum to 1.
        rank: the rank in which the cause lies, if the wait was followed to another.
        target: file, socket … that it is about.
        line: source line of the job's own code.
        awaited: a trainer waits for its loader's workers to be through with it.
    """

    cause: str
    weight: float
    rank: int | None = None
    target: str = ""
    line: str = ""
    awaited: bool = False


Shares = list[Share]


def all_of(cause: str, location: CodeLocation, target: str = "") -> Shares:
    """A whole instant that goes to one cause."""
    return [Share(cause, 1.0, target=target, line=location.line)]


def unattributed(location: CodeLocation) -> Shares:
    """An instant that nothing seen explains."""
    return all_of(UNATTRIBUTED, location)


def by_place(cause: str, location: CodeLocation) -> str:
    """What waiting for the device counts for at a location: in front of the model's call its input is copied."""
    with_input = location.detail == PREPARES or location.phase == "transfer"
    return INPUT_WAIT if cause == DEVICE_WAIT and with_input else cause


def scaled(shares: Iterable[Share], factor: float) -> Shares:
    """The same shares with other weights."""
    return [replace(share, weight=share.weight * factor) for share in shares]


def equally(several: Iterable[Shares]) -> Shares:
    """The shares of several who each have an equal part of an instant."""
    found = list(several)
    return [share for shares in found for share in scaled(shares, 1 / len(found))]


def running(
    job: JobTimeline, pid: int, state: ThreadState, time_ns: int, causes: Mapping[str, float], line: str
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
    """
    delay = state.delay_fraction
    why = job.cpu.delay_parts(time_ns) if delay >= thresholds.RUN_QUEUE_DELAY else {}
    kernel, kernel_cause = job.storage.at(pid, time_ns)
    work = 1 - delay * sum(why.values())
    weights = Amounts({cause: weight * work * (1 - kernel) for cause, weight in causes.items()})
    if kernel_cause:
        weights[kernel_cause] += work * kernel
    shares = [Share(cause, weight, line=line) for cause, weight in weights.items() if weight > 0]
    # Whoever is on the CPU instead is not at this line.
    return shares + [Share(cause, weight * delay) for cause, weight in why.items() if weight > 0]
