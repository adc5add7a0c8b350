"""The last figures of a recording as metrics: the one definition of what Prometheus and OTLP are given.

Names follow Prometheus' conventions (prometheus.io/docs/practices/naming): the unit last, and ``_total`` behind it
where a number only grows. What could not be read is left out, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Reading

_PREFIX = "perfdoctor_"
_SHARES = "cause_share"
_COUNTER = "_total"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
# Units by the ends of names, as UCUM writes them (ucum.org), the longer ends first. A fraction has none: "1" would make
# whoever turns OTLP into Prometheus' names put "_ratio" behind it.
_UNITS = {
    "_bytes_per_second": "By/s", "_bytes": "By", "_seconds": "s", "_hertz": "Hz", "_watts": "W", "_joules": "J",
    "_celsius": "Cel",
}  # fmt: skip
_OF_PROCESS = re.compile(r"(?:^|/)(?:pid|neighbour):\d+$")
# Readings of processes come every 10 s at least; those of one that has ended are of use to the next scrape.
_FORGOTTEN_NS = 60 * NS_PER_S


class Point(NamedTuple):
    """A value of a metric.

    Attributes:
        labels: what it is about.
        time_ns: when it was read; of what a diagnosis says, until when that looked.
    """

    labels: Mapping[str, str]
    value: float
    time_ns: int


class ExportedMetric(NamedTuple):
    """One metric.

    Attributes:
        name: with its unit, and ``_total`` at its end if it only grows.
        says: what it is.
        points: at least one, all with labels of the same names.
    """

    name: str
    says: str
    points: tuple[Point, ...]

    @property
    def grows(self) -> bool:
        """Whether it is a counter; a gauge if not."""
        return self.name.endswith(_COUNTER)

    @property
    def unit(self) -> str:
        """In which it is, as UCUM writes it; "" for counts and fractions."""
        name = self.name.removesuffix(_COUNTER)
        return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


class JobMetrics(NamedTuple):
    """What is known of a job by now.

    Attributes:
        metrics: sorted by name, those of the diagnosis first.
        meta: text facts about the recording.
    """

    metrics: tuple[ExportedMetric, ...]
    meta: Mapping[str, str]

    @property
    def diagnosed(self) -> bool:
        """Whether there are causes among them."""
        return any(metric.name == _PREFIX + _SHARES for metric in self.metrics)


class LastReadings:
    """What was read last of each subject; of a process not for much longer than it lives."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], Reading] = {}

    def add(self, readings: Iterable[Reading]) -> None:
        """Takes further readings, in order of time for each subject."""
        for reading in readings:
            if reading.value is not None:
                self._last[reading.probe, reading.name, reading.subject] = reading
        newest_ns = max((reading.time_ns for reading in self._last.values()), default=0)
        for key, reading in list(self._last.items()):
            if newest_ns - reading.time_ns > _FORGOTTEN_NS and _OF_PROCESS.search(reading.subject):
                del self._last[key]

    def metrics(self) -> Iterator[ExportedMetric]:
        """One for each probe and name."""
        by_name: dict[str, list[Reading]] = {}
        for _, reading in sorted(self._last.items()):
            by_name.setdefault(f"{reading.probe}_{reading.name}", []).append(reading)
        for name, found in sorted(by_name.items()):
            says = f"{found[0].name} as the {found[0].probe} probe read it last; see docs/readings.md."
            yield _metric(name, says, *map(_point, found))


def figures(recording: Recording, diagnosis: Diagnosis) -> JobMetrics:
    """Those of a recording and its diagnosis.

    Raises:
        PerfDoctorError: the recording is damaged.
    """
    last = LastReadings()
    last.add(recording.rows(Reading))
    return JobMetrics((*of_diagnosis(diagnosis, recording.end_ns), *last.metrics()), recording.meta)


def of_diagnosis(diagnosis: Diagnosis, time_ns: int) -> Iterator[ExportedMetric]:
    """The causes and the verdict.

    Args:
        diagnosis: what is said.
        time_ns: until when it looked.
    """
    shares = [Point({"cause": line.cause}, line.share, time_ns) for line in diagnosis.breakdown]
    if shares:
        yield _metric(_SHARES, "Fraction of the trainers' wall time by cause; see docs/causes.md.", *shares)
    verdict = diagnosis.verdict
    if verdict.cause is None or verdict.bottleneck is None:
        return
    where = {"bottleneck": verdict.bottleneck, "cause": verdict.cause}
    confidence = "How often the same cause comes first, resampled; 0 to 1."
    yield _metric("verdict_confidence", confidence, Point(where, verdict.confidence, time_ns))
    speedup = "How many times as fast the job would be if it was fixed."
    yield _metric("predicted_speedup_ratio", speedup, Point(where, verdict.predicted_speedup, time_ns))


def _metric(name: str, says: str, *points: Point) -> ExportedMetric:
    return ExportedMetric(_PREFIX + _NOT_IN_NAMES.sub("_", name), says, points)


def _point(reading: Reading) -> Point:
    assert reading.value is not None
    return Point({"subject": reading.subject}, reading.value, reading.time_ns)
