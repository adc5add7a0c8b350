"""What a trial says about a verdict: steps on one batch in memory against ordinary ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfdoctor.causes import INPUT_CAUSES
from perfdoctor.diagnosis import CONFIRMED, Verdict
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import TrialSeen


@dataclass(frozen=True, slots=True)
class SameBatchTrial:
    """Trials of all ranks.

    Attributes:
        steps: how many steps were made.
        step_s: how long one took on a batch in memory.
        saved: by which fraction it was shorter than an observed one; below 0 if it was longer.
    """

    steps: int
    step_s: float
    saved: float

    def as_json(self) -> dict[str, Any]:
        """As reports show it."""
        return {"count": self.steps, "median_s": self.step_s, "saved": self.saved}


def read_trial(trials: Iterable[TrialSeen], steps: Mapping[int, Mapping[str, Any]]) -> SameBatchTrial | None:
    """The mean over the ranks that made a trial; None if none did.

    Args:
        trials: of all ranks.
        steps: by process, what is known of its observed steps.
    """
    found = []
    for row in trials:
        observed = steps.get(row.pid)
        if observed:
            seconds = row.step_ns / NS_PER_S
            found.append(SameBatchTrial(row.steps, seconds, 1 - seconds / observed["mean_s"]))
    return _mean(found) if found else None


def _mean(trials: Sequence[SameBatchTrial]) -> SameBatchTrial:
    count = len(trials)
    return SameBatchTrial(
        trials[0].steps, sum(trial.step_s for trial in trials) / count, sum(trial.saved for trial in trials) / count
    )


def judge(verdict: Verdict, trial: SameBatchTrial | None) -> Verdict:
    """The verdict, after a trial of what it says.

    A trial without input only tries causes that lie in the input.
    """
    if trial is None or verdict.cause not in INPUT_CAUSES:
        return verdict
    more = trial.saved > (1 + thresholds.TRIAL_AGREES) * verdict.share
    if trial.saved >= (1 - thresholds.TRIAL_AGREES) * verdict.share:
        confirmed = say("verdict.confirmed", verdict=verdict.summary, saved=trial.saved, more=more)
        return replace(verdict, level=CONFIRMED, summary=confirmed)
    doubted = say("verdict.doubted", verdict=verdict.summary, saved=trial.saved)
    return replace(verdict, confidence=float(min(verdict.confidence, thresholds.CONFIDENCE_DOUBTED)), summary=doubted)
