"""A verdict in words: the lines that come first in every report."""

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Verdict
from perfdoctor.reports.tables import Rows
from perfdoctor.reports.text import clean, percent, sentence, speedup

_RESOURCES = {"cpu": "CPU", "gpu": "GPU", "io": "I/O", "communication": "communication"}


def claim(verdict: Verdict) -> str:
    """The bottleneck and its cause in a few words."""
    if verdict.bottleneck is None or verdict.cause is None:
        return "No bottleneck named: the evidence does not suffice"
    cause = CAUSES[verdict.cause]
    if cause.healthy:
        return "Unequal ranks hold this job back" if _is_unequal(verdict) else "Nothing is holding this job back"
    return f"{sentence(_RESOURCES[verdict.bottleneck])} bottleneck: {cause.title}"


def headline(verdict: Verdict) -> str:
    """One line with bottleneck, cause, share and predicted speed-up."""
    said, share = claim(verdict), percent(verdict.share)
    if verdict.bottleneck is None or verdict.cause is None:
        return said
    cause = CAUSES[verdict.cause]
    if cause.healthy:
        equal = f", {speedup(verdict.predicted_speedup)} if equal" if verdict.predicted_speedup > 1 else ""
        return f"{said}{equal}: {share} is {cause.title}"
    return f"{said}, {share} of the time, {speedup(verdict.predicted_speedup)} if fixed"


def tone(verdict: Verdict) -> str:
    """``ill``, ``healthy`` or ``unknown``."""
    if verdict.bottleneck is None or verdict.cause is None:
        return "unknown"
    return "healthy" if CAUSES[verdict.cause].healthy and not _is_unequal(verdict) else "ill"


def _is_unequal(verdict: Verdict) -> bool:
    """Whether ranks wait for others that do more of what is healthy in itself."""
    return verdict.straggler_rank is not None or verdict.predicted_speedup > 1


def figures(verdict: Verdict) -> Rows:
    """The verdict's numbers, as label and text."""
    if verdict.cause is None or verdict.bottleneck is None:
        return ()
    rows = [("Share of wall time", percent(verdict.share))]
    if verdict.predicted_speedup > 1:
        rows.append(("Predicted pace if fixed", speedup(verdict.predicted_speedup)))
    rows.append(("Confidence", percent(verdict.confidence)))
    if verdict.straggler_rank is not None:
        rows.append(("Straggler", f"rank {verdict.straggler_rank}"))
    return tuple(rows)


def basis(verdict: Verdict) -> Rows:
    """What the verdict rests on, as label and text."""
    level = ("How it is known", clean(verdict.level))
    return (level,) if verdict.cause is None else (level, ("Cause", verdict.cause))


def straggler(verdict: Verdict) -> str:
    """Who holds the others back, in a sentence; "" if nobody does."""
    rank = verdict.straggler_rank
    return "" if rank is None else f"Rank {rank} is the straggler: the other ranks wait for it."
