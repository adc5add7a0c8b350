"""Long steps: those in which something came that ordinary ones lack, a checkpoint, a new epoch or a stall.

What a long step takes longer than an ordinary one lies in those of its parts that are longer than usual. Samples that
were taken there stand for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.quantiles import median, robust_deviation
from perfdoctor.timeline.steps import Steps, Times

Floats = npt.NDArray[np.float64]


def longest_ordinary(lengths: npt.NDArray[np.number]) -> float:
    """How long a step may take before it is a long one: Hampel's identifier.

    Median and median absolute deviation stay what they are while fewer than half of the steps are long.

    Args:
        lengths: of the steps, in any unit.

    Returns:
        In the same unit; 0 without steps.
    """
    if not len(lengths):
        return 0.0
    return median(lengths) + thresholds.LONG_STEP * robust_deviation(lengths)


def excess(lengths: npt.NDArray[np.number]) -> Floats:
    """What each long step takes longer than the median one, in the unit of the lengths; 0 for ordinary ones."""
    if not len(lengths):
        return np.zeros(0)
    longer: Floats = np.asarray(lengths - median(lengths), dtype=np.float64)
    return np.where(lengths > longest_ordinary(lengths), longer, 0.0)


def weigh_excess(steps: Steps, times_ns: Times, edges_ns: Floats) -> Floats:
    """How many seconds of what long steps take longer each sample stands for.

    It is ``Steps.weigh`` for that time alone. What lies in a part of a step of which there is no sample goes to the
    samples of that part in other long steps, or else to those of all long steps.

    Args:
        steps: the observed ones.
        times_ns: when the samples were taken.
        edges_ns: borders of what they stand for, one more than samples.

    Returns:
        Seconds, which sum to the excess of all steps; all 0 where no long step was sampled.
    """
    longer = _by_part(steps)
    ends = np.array([step.end_ns for step in steps.all], dtype=np.int64)
    begins = np.array([step.from_ns for step in steps.all], dtype=np.int64)
    places: list[tuple[str, int] | None] = []
    names, numbers = steps.names_at(times_ns), np.searchsorted(ends, times_ns, side="right")
    for time_ns, name, number in zip(times_ns.tolist(), names.tolist(), numbers.tolist(), strict=True):
        place = (name, number) if number < len(ends) and time_ns >= begins[number] else None
        places.append(place if place is not None and longer[place] > 0 else None)
    return _shared_out(longer, places, np.diff(edges_ns) / NS_PER_S)


def _by_part(steps: Steps) -> Amounts[tuple[str, int]]:
    """Seconds by which long steps are longer, by part and number of the step."""
    longer = excess(steps.lengths_ns) / NS_PER_S
    found: Amounts[tuple[str, int]] = Amounts()
    if not longer.any():
        return found
    grown = {name: np.maximum(spent - median(spent), 0.0) for name, spent in steps.by_phase.items()}
    together = sum(grown.values(), np.zeros(len(longer)))
    for number in np.flatnonzero(longer).tolist():
        for name, spent in grown.items():
            if spent[number] > 0:
                found[name, number] = float(longer[number] * spent[number] / together[number])
    return found


def _shared_out(longer: Amounts[tuple[str, int]], places: list[tuple[str, int] | None], spans_s: Floats) -> Floats:
    """The excess, shared by the samples in the same part and step as their spans are."""
    sampled: Amounts[tuple[str, int]] = Amounts()
    for place, span in zip(places, spans_s.tolist(), strict=True):
        if place is not None:
            sampled[place] += span
    seen: Amounts[str] = Amounts()
    unseen: Amounts[str] = Amounts()
    for (name, number), seconds in longer.items():
        (seen if sampled[name, number] > 0 else unseen)[name] += seconds
    anywhere = sum(seconds for name, seconds in unseen.items() if not seen[name])
    found = np.zeros(len(places))
    for index, place in enumerate(places):
        if place is not None and sampled[place] > 0:
            grown = 1 + unseen[place[0]] / seen[place[0]] + anywhere / seen.total
            found[index] = longer[place] * grown * spans_s[index] / sampled[place]
    return found
