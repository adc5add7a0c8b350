"""What collectives that Python calls are for, by where they are called: the model's layers, or something besides."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import INSTALLED, calls_backward, calls_model, meaning, sends_all_to_all
from perfdoctor.knowledge.libraries import ADDED_UP, ALL_TO_ALL
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.stacks import Stacks

# DistributedDataParallel, which has rank 0's buffers sent to all ranks in front of each forward pass.
_SENDS_BUFFERS = meaning(r"torch/nn/parallel/distributed\.py", "_sync_buffers", "")

# accelerate's loader, which has one rank read all batches and send the others theirs: no exchange that a script could
# do more rarely.
_SENDS_BATCHES = meaning(rf"{INSTALLED}/accelerate/data_loader\.py", "", "")


def sending_buffers(stacks: Stacks, trainers: Collection[int]) -> float | None:
    """Part of the trainers' time in which DistributedDataParallel has buffers sent; None where none was seen."""
    spent = stacks.spent_ns(trainers)
    found = [amount for number, amount in spent.items() if any(map(_SENDS_BUFFERS.matches, stacks.frames[number]))]
    return sum(found) / spent.total if found else None


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Nanoseconds of trainers in collectives. DistributedDataParallel calls none in Python, but for hooks.

    Attributes:
        forward: in the model's forward pass.
        backward: in the backward pass.
        all_to_all: of both, where each rank sends something else to each other one.
        besides: outside of both, by the job's own line; without what a loader sends.
        spent: of these threads in all.
    """

    forward: float = 0.0
    backward: float = 0.0
    all_to_all: float = 0.0
    besides: Amounts[str] = field(default_factory=Amounts)
    spent: float = 0.0

    @property
    def activations(self) -> str:
        """How ranks exchange activations, if they do mostly that; "" otherwise.

        Of layers that they share: in the forward pass, and as much again in the backward pass.
        """
        least = thresholds.MOSTLY * (self.forward + self.backward + self.besides.total)
        if not least:
            return ""
        if self.all_to_all >= least:
            return ALL_TO_ALL
        return ADDED_UP if 2 * self.forward >= least else ""

    def besides_passes(self) -> tuple[tuple[str, float], ...]:
        """Lines that call collectives outside of the passes, each with its fraction of the time, the largest first."""
        parts = sorted(self.besides.items(), key=lambda one: -one[1])
        return tuple((line, amount / self.spent) for line, amount in parts if line)


def read_exchanges(stacks: Stacks, trainers: Collection[int]) -> Exchanges:
    """The exchanges of some trainers, by PID; what evaluates is left out."""
    spent = stacks.spent_ns(trainers)
    forward, backward, all_to_all, besides = 0.0, 0.0, 0.0, Amounts[str]()
    for number, amount_ns in spent.items():
        location, frames = stacks.locations[number], stacks.frames[number]
        if location.phase != "gradient sync" or location.in_evaluation:
            continue
        if calls_backward(frames):
            backward += amount_ns
        elif calls_model(frames):
            forward += amount_ns
        else:
            if not any(map(_SENDS_BATCHES.matches, frames)):
                besides[location.line] += amount_ns
            continue
        if sends_all_to_all(frames):
            all_to_all += amount_ns
    return Exchanges(forward, backward, all_to_all, besides, spent.total)
