"""Figures of a job while it is watched, scraped by Prometheus and sent over OTLP: a process beside the recorder."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler

import psutil
from prometheus_client.exposition import ThreadingWSGIServer

from perfdoctor.errors import PerfDoctorError
from perfdoctor.exports import prometheus
from perfdoctor.exports.metrics import ExportedMetric, JobMetrics, LastReadings, of_diagnosis
from perfdoctor.exports.otlp import Sender, interval_s
from perfdoctor.live import beside
from perfdoctor.live.analyst import Analyst
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.follow import Follower
from perfdoctor.recording.schema import Reading

if TYPE_CHECKING:
    from perfdoctor.analysis.live_view import Examined

_POLL_S = 0.5  # whether the watching has ended
# Who asks and then says nothing is waited for so long.
_SILENCE_S = 10.0


class Exporter:
    """The process.

    Attributes:
        pid: its id.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def used(self) -> Iterator[Reading]:
        """What it has used so far: it goes on until the diagnosis is made."""
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:  # it has ended, and its parent has not waited for it yet
            return
        yield Reading(now_ns(), "recorder", "perfdoctor", "exporter_cpu_seconds_total", times.user + times.system)


class Server(ThreadingWSGIServer):
    """Takes a port; whoever asks there waits until the process answers.

    Args:
        host: where to listen, an address of this host.
        port: 0 for any that is free.

    Raises:
        PerfDoctorError: it cannot be taken.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            self.address_family, *_, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            super().__init__((str(address[0]), port), _Handler)
        except UnicodeError:  # what is no name of any host
            raise PerfDoctorError(f"There is no address {host}.", hint=_next_move(None)) from None
        except OSError as error:
            why = error.strerror or error
            raise PerfDoctorError(
                f"Metrics cannot be served on port {port} of {host}: {why}.", hint=_next_move(error.errno)
            ) from None

    @property
    def url(self) -> str:
        """Where to ask."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if self.address_family is socket.AF_INET6 else str(host)
        return f"http://{shown}:{port}/metrics"

    def answer(self, newest: Callable[[], Sequence[ExportedMetric]]) -> None:
        """Answers with the newest figures from now on, in a thread."""
        self.set_app(prometheus.application(newest))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever has asked went away."""


def _next_move(why: int | None) -> str:
    if why == errno.EADDRINUSE:
        return "Choose another with --metrics-port, or 0 for one that is free."
    if why == errno.EACCES:
        return "Choose a port above 1023."
    return "Choose an address of this host with --metrics-host, 127.0.0.1 for instance."


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_S

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the terminal may show the job."""


@contextmanager
def exporting(
    path: Path, server: Server | None, endpoint: str | None, *, beside_recorder: bool = True
) -> Iterator[Exporter]:
    """Exports the figures of a recording meanwhile; those that were last, when the watching has ended.

    Args:
        path: the recording.
        server: answers Prometheus.
        endpoint: to whom figures are sent, as ``Sender`` takes it; None for nobody.
        beside_recorder: the recording is about to begin.
    """
    process = beside.start(_export, path, server, endpoint, beside_recorder)
    if server is not None:
        server.socket.close()  # it is the process's from now on
    try:
        yield Exporter(process.pid or 0)
    finally:
        beside.end(process)


def _export(
    path: Path, server: Server | None, endpoint: str | None, beside_recorder: bool, wanted: Callable[[], bool]
) -> None:
    with Analyst(path, _NewestFigures().take, beside_recorder=beside_recorder) as analyst:
        if server is not None:
            server.answer(lambda: _metrics(analyst))
        if endpoint is not None:
            threading.Thread(target=_send, args=(Sender(endpoint), analyst), daemon=True).start()
        while wanted():
            analyst.newest()
            time.sleep(_POLL_S)


class _NewestFigures:
    """Makes figures of what has come by then."""

    def __init__(self) -> None:
        self._last = LastReadings()

    def take(self, follower: Follower, at_ns: int, examined: Examined, *, live: bool) -> JobMetrics:
        self._last.add(follower.newer(Reading))
        said = of_diagnosis(examined.diagnosis, examined.span[1]) if examined.diagnosis is not None else ()
        return JobMetrics((*said, *self._last.metrics()), follower.meta)


def _metrics(analyst: Analyst[JobMetrics]) -> Sequence[ExportedMetric]:
    with suppress(PerfDoctorError):  # the recording is damaged, or gone: the process is about to end
        if (newest := analyst.newest()) is not None:
            return newest.metrics
    return ()


def _send(sender: Sender, analyst: Analyst[JobMetrics]) -> None:
    first_s = time.monotonic() + interval_s()
    with suppress(PerfDoctorError):  # the recording is damaged, or gone: there will be no more
        while ((newest := analyst.newest()) is None or not newest.diagnosed) and time.monotonic() < first_s:
            time.sleep(min(_POLL_S, interval_s()))
        while True:
            # What cannot be sent is said by `attach` when the watching has ended, and the last figures are.
            with suppress(PerfDoctorError):
                if newest is not None:
                    sender.send(newest)
            time.sleep(interval_s())
            newest = analyst.newest()
