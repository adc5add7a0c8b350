"""What overlaps in a training step: steps as they are, against steps whose phases were kept apart.

The method of those who train large models: time the step, then each part by itself under synchronization. The sum of
the parts, less the step, is what hides behind something else. All but forward, loss, backward, gradient sync and
optimizer ought to hide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from perfdoctor.diagnosis import Evidence
from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.names import Numbers, evidence, put
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Mark
from perfdoctor.timeline.code_location import TRAINING_PHASES
from perfdoctor.timeline.marks import DEVICE, SERIALISED, Segments, in_order
from perfdoctor.timeline.steps import Steps, spent_in

WAIT = "rank wait"
# The value of a device's step mark where no timed step ended.
FIRST = 1
DATA = "data"
# A device's events have a resolution of half a microsecond.
RESOLUTION_S = 1e-6


@dataclass(frozen=True, slots=True)
class Parts:
    """Steps, and what their parts took.

    Attributes:
        count: how many steps.
        step_s: the median step.
        phases: name to seconds, as the median over the steps.
    """

    count: int
    step_s: float
    phases: Mapping[str, float]

    @property
    def sum_s(self) -> float:
        """What the parts take one after the other."""
        return sum(self.phases.values())

    def overlap(self, step_s: float) -> float:
        """Which fraction of the parts hides behind others in a step of ``step_s``."""
        return max(0.0, 1 - step_s / self.sum_s) if self.sum_s > 0 else 0.0

    def exposed(self, step_s: float) -> dict[str, float]:
        """Per part, by how many seconds a step is longer than all its other parts, and so than it has to be."""
        return {name: min(spent, max(0.0, step_s - self.sum_s + spent)) for name, spent in self.phases.items()}


def serialised_parts(steps: Steps) -> Parts | None:
    """The serialised steps of a trainer; None if it made none."""
    marks = list(_without_waits(steps.tracks.get("serialised", ())))
    borders = [
        mark.time_ns for mark in marks if mark.what == "step" or (mark.what == SERIALISED and mark.edge == "begin")
    ]
    found = in_order(mark for mark in marks if mark.what != SERIALISED)
    return _parts(found.segments, list(pairwise(borders)))


def device_parts(steps: Steps) -> Parts | None:
    """Ordinary steps as the device came through them; None if it was not asked."""
    return _parts(*device_track(steps))


def device_track(steps: Steps) -> tuple[Segments, list[tuple[int, int]]]:
    """In which part of a step the device was, and beginnings and ends of the steps in which it was asked."""
    marks = [mark._replace(edge=mark.edge.removeprefix(DEVICE)) for mark in steps.tracks.get("device", ())]
    points = [(mark.time_ns, mark.value) for mark in marks if mark.what == "step"]
    spans = [(start, end) for (start, _), (end, value) in pairwise(points) if value != FIRST]
    return in_order(marks).segments, spans


def summary(steps: Steps) -> dict[str, Any]:
    """What reports show of both, beside the steps as they were; only what is known."""
    found: dict[str, Any] = {}
    if (device := device_parts(steps)) is not None:
        found["device"] = {"count": device.count, "median_s": device.step_s, "phases": dict(device.phases)}
    parts, step_s = serialised_parts(steps), median_step(steps)
    if parts is not None and step_s is not None:
        exposed = parts.exposed(step_s)
        found[SERIALISED] = {
            "count": parts.count,
            "sum_s": parts.sum_s,
            "overlap": parts.overlap(step_s),
            "phases": {name: {"median_s": spent, "exposed_s": exposed[name]} for name, spent in parts.phases.items()},
        }
    return found


def measure_overlap(ranks: Mapping[int, Steps]) -> Numbers:
    """The numbers of ``names.TIMER``, as means over the ranks that made serialised steps.

    Args:
        ranks: the steps of each trainer, by rank.
    """
    numbers: Numbers = {}
    found, lengths = _serialised(ranks)
    if not lengths:
        return numbers
    exposed = [(found[rank].exposed(length), length) for rank, length in lengths.items()]
    put(numbers, "overlap", _mean([found[rank].overlap(length) for rank, length in lengths.items()]))
    put(numbers, "exposed_data", _mean([parts.get(DATA, 0.0) / length for parts, length in exposed]))
    rest = {name for parts, _ in exposed for name in parts} - TRAINING_PHASES - {DATA}
    shares = [sum(parts.get(name, 0.0) for name in rest) / length for parts, length in exposed]
    put(numbers, "exposed_rest", min(1.0, _mean(shares)))
    return numbers


def measure_longer(ranks: Mapping[int, Steps]) -> dict[int, Evidence]:
    """By rank what takes it longer than all others in serialised steps; none where nothing does."""
    found, lengths = _serialised(ranks)
    longer = _longer(found, max(lengths.values())) if lengths else {}
    return {rank: evidence("longer", text, str(rank)) for rank, text in longer.items()}


def _serialised(ranks: Mapping[int, Steps]) -> tuple[dict[int, Parts], dict[int, float]]:
    """The serialised steps of those ranks that made some, and the usual steps' length of those that know it."""
    found = {rank: parts for rank, steps in ranks.items() if (parts := serialised_parts(steps)) is not None}
    return found, {rank: length for rank in found if (length := median_step(ranks[rank])) is not None}


def median_step(steps: Steps) -> float | None:
    """Seconds of an observed step; None without steps."""
    return float(np.median(steps.lengths_ns / NS_PER_S)) if steps.all else None


def _longer(found: Mapping[int, Parts], step_s: float) -> dict[int, str]:
    """Per rank the phase that takes longest beyond what it takes any other, where ranks began each phase together."""
    longer = {}
    for rank, parts in found.items():
        others = [other.phases for number, other in found.items() if number != rank]
        usual = {name: max((phases.get(name, 0.0) for phases in others), default=math.inf) for name in parts.phases}
        name = max(usual, key=lambda one: parts.phases[one] - usual[one], default="")
        if name and parts.phases[name] - usual[name] > thresholds.LONGER_PHASE * step_s:
            own, most = parts.phases[name] * 1000, usual[name] * 1000
            longer[rank] = f"{name}: {own:.3g} ms, at most {most:.3g} ms in the others"
    return longer


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _parts(segments: Segments, spans: Sequence[tuple[int, int]]) -> Parts | None:
    steps = np.array([span for span in spans if span[1] > span[0]], dtype=np.int64)
    if not len(steps):
        return None
    begins, ends = steps.T
    spent = {name: float(np.median(seconds)) for name, seconds in spent_in(segments, begins, ends).items()}
    lengths = (ends - begins) / NS_PER_S
    longest = sorted(spent.items(), key=lambda item: -item[1])
    phases = {name: seconds for name, seconds in longest if seconds >= RESOLUTION_S}
    return Parts(len(steps), float(np.median(lengths)), phases)


def _without_waits(marks: Sequence[Mark]) -> list[Mark]:
    """As if no rank had waited for another one: what lay behind a wait comes that much earlier."""
    waited, since, kept = 0, 0, []
    for mark in marks:
        if mark.what != WAIT:
            kept.append(mark._replace(time_ns=mark.time_ns - waited))
        elif mark.edge == "begin":
            since = mark.time_ns
        elif since:
            waited, since = waited + mark.time_ns - since, 0
    return kept
