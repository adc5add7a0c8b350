"""The last figures of a history for Prometheus, from a process of its own that reads the history's file on."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from perfdoctor.exports.metrics import ExportedMetric, Point
from perfdoctor.live import beside
from perfdoctor.live.exporter import Server
from perfdoctor.monitor.history import read
from perfdoctor.monitor.slow_readings import SIGNALS
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.results.history import HERE, Appeared, Beat, Incident, Line, Presence, Window

_POLL_S = 1.0  # whether the watching has ended


@contextmanager
def exporting(history: Path, server: Server) -> Iterator[None]:
    """Answers Prometheus meanwhile.

    Args:
        history: the history's file, which may not be there yet.
        server: where to.
    """
    process = beside.start(_export, history, server)
    server.socket.close()  # it is the process's from now on
    try:
        yield
    finally:
        beside.end(process)


def _export(history: Path, server: Server, wanted: Callable[[], bool]) -> None:
    server.answer(HistoryMetrics(history).newest)
    while wanted():
        time.sleep(_POLL_S)


class HistoryMetrics:
    """What a history says by now, read on from where it was read last.

    Args:
        history: its file.
    """

    def __init__(self, history: Path) -> None:
        self._path, self._lock = history, threading.Lock()
        self._file, self._read_to = 0, 0
        self._totals: dict[str, float] = defaultdict(float)
        self._incidents: dict[int, Incident] = {}
        self._beat: Beat | None = None
        self._window: Window | None = None
        self._presence: Presence | None = None

    def newest(self) -> list[ExportedMetric]:
        """The figures; may be called by any thread."""
        with self._lock:
            self._read_on()
            return list(self._metrics())

    def _read_on(self) -> None:
        try:
            status = self._path.stat()
        except OSError:
            return
        if status.st_ino != self._file or status.st_size < self._read_to:
            self._file, self._read_to = status.st_ino, 0  # another file: moved away, or shortened
        for line, end in read(self._path, self._read_to):
            self._read_to = end
            if self._is_counted(line):
                continue
            if isinstance(line, Beat):
                self._beat = line
                self._totals["steps"] += line.steps
                self._totals["long_step_seconds"] += sum(step.longer_s for step in line.long)
            elif isinstance(line, Window):
                self._window = line
                self._totals["windows"] += 1
            elif isinstance(line, Incident):
                self._incidents[line.number] = line
            else:
                self._presence = line
                self._totals["job_starts"] += line.what in HERE

    def _is_counted(self, line: Line) -> bool:
        """Whether a line was there before its file was shortened."""
        if isinstance(line, Beat):
            return self._beat is not None and line.began <= self._beat.began
        if isinstance(line, Window):
            return self._window is not None and line.began <= self._window.began
        return isinstance(line, Presence) and self._presence is not None and line.at <= self._presence.at

    def _metrics(self) -> Iterator[ExportedMetric]:
        beat, window = self._beat, self._window
        if self._presence is not None:
            up = float(self._presence.what in (*HERE, Appeared.UNSEEN))
            yield _metric("job_up", "1 while the job is there.", up, self._presence.at)
            yield _total("job_starts", "How often the job was found or started again.", self._totals, self._presence.at)
        if beat is not None:
            at = beat.ended
            if beat.step_s is not None:
                yield _metric("step_seconds", "Seconds per step, without what long ones take longer.", beat.step_s, at)
            yield _total("steps", "Steps that were counted.", self._totals, at)
            yield _total("long_step_seconds", "What long steps took longer.", self._totals, at)
            for name in SIGNALS:
                if name in beat.readings:
                    yield _metric(name, "See docs/monitor.md.", beat.readings[name], at)
        if window is not None:
            time_ns = int(window.ended * NS_PER_S)
            shares = tuple(Point({"cause": cause}, share, time_ns) for cause, share in window.shares.items())
            if shares:
                yield ExportedMetric(
                    "perfdoctor_cause_share",
                    "Fraction of the trainers' wall time by cause, in the last window.",
                    shares,
                )
            yield _total("windows", "Windows of perfdoctor attach.", self._totals, window.ended)
        kinds = Counter(incident.what.name.lower() for incident in self._incidents.values())
        if kinds:
            time_ns = int(max(incident.since for incident in self._incidents.values()) * NS_PER_S)
            points = tuple(Point({"what": kind}, float(count), time_ns) for kind, count in sorted(kinds.items()))
            yield ExportedMetric("perfdoctor_incidents_total", "What happened to the job.", points)


def _total(name: str, says: str, totals: Mapping[str, float], at: float) -> ExportedMetric:
    return _metric(f"{name}_total", says, totals[name], at)


def _metric(name: str, says: str, value: float, at: float) -> ExportedMetric:
    return ExportedMetric(f"perfdoctor_{name}", says, (Point({}, value, int(at * NS_PER_S)),))
