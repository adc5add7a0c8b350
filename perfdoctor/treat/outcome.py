"""What came of a search, as reports are made from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfdoctor.knowledge import thresholds
from perfdoctor.messages import Text
from perfdoctor.results.treatment import Control, Outcome, Trial
from perfdoctor.treat.run import SeenRun
from perfdoctor.treat.search import Arm, first_step_s, paces
from perfdoctor.treat.situation import Situation

_ORDER = {outcome: place for place, outcome in enumerate(Outcome)}


def in_order(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Trials as reports show them: the most gain first, then what was not tried."""
    return tuple(sorted(trials, key=lambda one: (_ORDER[one.outcome], -(one.measured.speedup if one.measured else 0))))


def control_of(runs: Sequence[SeenRun], first: int, steps: int) -> Control:
    """The job as it is.

    Args:
        runs: those without a change.
        first: steps of each that are left out.
        steps: those that are measured.
    """
    logs = [math.log(pace) for pace in paces(runs)]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((one - mean) ** 2 for one in logs) / (len(logs) - 1)) if len(logs) > 1 else None
    losses = [run.losses for run in runs]
    count = min(map(len, losses))
    gpu = [run.gpu_memory_bytes for run in runs if run.gpu_memory_bytes is not None]
    return Control(
        step_s=math.exp(mean),
        spread=spread,
        runs=len(runs),
        first_step_s=first_step_s(runs) or 0.0,
        warmup_steps=first,
        steps=steps,
        step_is=runs[0].step_is,
        memory_bytes=max(run.memory_bytes for run in runs),
        gpu_memory_bytes=max(gpu, default=None),
        deterministic=all(one[:count] == losses[0][:count] for one in losses) if count and len(runs) > 1 else None,
    )


def trial_of(arm: Arm, situation: Situation, unfinished: Text) -> Trial:
    """What came of one change, or of several together.

    Args:
        arm: the change, with its runs.
        situation: has what the diagnosis predicts.
        unfinished: why it was not run twice, if it was not.
    """
    alone = arm.treatments[0] if len(arm.treatments) == 1 else None
    start, usual = first_step_s(arm.runs), first_step_s(arm.controls)
    late = start is not None and usual is not None and start > thresholds.LATE_FIRST_STEP * usual
    gpu = [run.gpu_memory_bytes for run in arm.runs if run.gpu_memory_bytes is not None]
    return Trial(
        id=arm.name,
        advice=tuple(one.advice for one in arm.treatments),
        causes=tuple(dict.fromkeys(cause for one in arm.treatments for cause in one.causes)),
        predicted=situation.predicted(alone) if alone else None,
        at_most=situation.most(alone) if alone else None,
        bound=arm.is_bound,
        outcome=arm.outcome if arm.runs or arm.detail else Outcome.NOT_TRIED,
        measured=arm.measured,
        training=arm.training,
        detail=arm.detail or (unfinished if len(arm.runs) < 2 else ""),
        first_step_s=start if late else None,
        memory_bytes=max((run.memory_bytes for run in arm.runs), default=None),
        gpu_memory_bytes=max(gpu, default=None),
    )
