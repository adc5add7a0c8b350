"""How sure a verdict is: the seconds of a recording drawn anew, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfdoctor.causes import GPU_COMPUTE, KERNEL_LAUNCH, MODEL_COMPUTE, PYTHON_OVERHEAD, SYNCHRONIZATION
from perfdoctor.diagnosis import INSIDE, OUTSIDE, TRACED
from perfdoctor.knowledge import hardware, thresholds
from perfdoctor.rules.resampling import RESAMPLES, drawn_sums, drawn_weights
from perfdoctor.rules.verdict import first_cause
from perfdoctor.timeline.amounts import Amounts, summed_by_block
from perfdoctor.timeline.quantiles import quantiles

if TYPE_CHECKING:
    from perfdoctor.attribution.account import Account  # it brings the job, which traces do without
    from perfdoctor.rules.case import Case


# Whose shares divide the time of a GPU between work and idling; all else that holds up its host is seen on that.
_OF_GPU_TIME = frozenset((GPU_COMPUTE, KERNEL_LAUNCH, SYNCHRONIZATION))
# What only machine code tells apart.
_TOLD_BY_CODE = frozenset((MODEL_COMPUTE, PYTHON_OVERHEAD))


def most_confidence(case: Case, cause: str, level: str) -> float:
    """How sure a verdict can be at most, by what it rests on.

    Args:
        case: the job.
        cause: the one that is named.
        level: what the accounts rest on.
    """
    if level != TRACED and case.uses_gpu:
        if cause in _OF_GPU_TIME and not gpu_use_is_read(case):
            return thresholds.CONFIDENCE_GPU_UNREAD
        return thresholds.CONFIDENCE_GPU_TRIED if knows_such_gpus(case) else thresholds.CONFIDENCE_GPU_OUTSIDE
    if level != TRACED and not case.code_seen and cause in _TOLD_BY_CODE:
        return thresholds.CONFIDENCE_WITHOUT_CODE
    if level == OUTSIDE:
        return thresholds.CONFIDENCE_OUTSIDE
    return {INSIDE: thresholds.CONFIDENCE_INSIDE, TRACED: thresholds.CONFIDENCE_TRACED}.get(level, 1.0)


def knows_such_gpus(case: Case) -> bool:
    """Whether a job was watched from outside as others were on a GPU of its generation, with its use read."""
    return gpu_use_is_read(case) and hardware.tried_from_outside(case.setting("compute_capability"))


def gpu_use_is_read(case: Case) -> bool:
    """Whether the driver said how busy the job's GPUs were."""
    return case.number("gpu_busy") is not None


def agreement(accounts: Sequence[Account], cause: str, level: str, least: Mapping[str, float]) -> float:
    """How often the same cause comes first when the seconds of the recording are drawn anew, with replacement.

    A block bootstrap: neighbouring samples are alike, so whole seconds are drawn, the same ones for all ranks.

    Args:
        accounts: of the trainers.
        cause: the one that comes first over all of the time.
        level: what they rest on.
        least: as for ``first_cause``.
    """
    parts = summed_by_block(account.by_block() for account in accounts)
    if len(parts) < 2:
        return 0.0
    late = summed_by_block(account.late_by_block() for account in accounts)
    waits = [late.get(number, Amounts()) for number in parts]
    weights = drawn_weights(list(parts.values()))
    drawn = drawn_sums(list(parts.values()), weights)
    drawn_late = drawn_sums(waits, weights) if any(waits) else [{}] * RESAMPLES
    return (
        sum(first_cause(*shares, level, least) == cause for shares in zip(drawn, drawn_late, strict=True)) / RESAMPLES
    )


def surest(steps: int) -> float:
    """How sure to be at most after so many steps that were all alike: Laplace's rule of succession."""
    return (steps + 1) / (steps + 2)


def share_ranges(accounts: Sequence[Account]) -> dict[str, tuple[float, float]]:
    """Cause to the shares between which it lies nine times in ten when seconds are drawn anew, as for confidence."""
    parts = list(summed_by_block(account.by_block() for account in accounts).values())
    if len(parts) < 2:
        return {}
    drawn = drawn_sums(parts, drawn_weights(parts))
    return {cause: tuple(quantiles([shares[cause] for shares in drawn], (0.05, 0.95)).tolist()) for cause in drawn[0]}
