"""Who is given a job's figures while it is watched, as `--metrics-port` and `--otlp` say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.exports.metrics import figures
from perfdoctor.exports.otlp import Sender, require_sdk
from perfdoctor.recording.reader import Recording

if TYPE_CHECKING:
    from perfdoctor.live.exporter import Exporter, Server


def prepare_exports(
    metrics_port: int | None, metrics_host: str, otlp: str | None, *, beside_recorder: bool = True
) -> Callable[[Path], AbstractContextManager[Exporter | None]]:
    """Makes sure that figures can be exported, before the job is touched.

    Args:
        metrics_port: that of the option.
        metrics_host: that of the option.
        otlp: that of the option.
        beside_recorder: as ``exporting`` takes it.

    Returns:
        What exports the figures of a recording meanwhile.

    Raises:
        PerfDoctorError: the port cannot be had, or OpenTelemetry's SDK is missing.
    """
    if otlp is not None:
        require_sdk()
    if metrics_port is None and otlp is None:
        return lambda _: nullcontext()
    from perfdoctor.live.exporter import exporting

    server = None if metrics_port is None else metrics_server(metrics_host, metrics_port)
    return partial(exporting, server=server, endpoint=otlp, beside_recorder=beside_recorder)


def metrics_server(host: str, port: int) -> Server:
    """Takes the port where Prometheus asks, and says where that is.

    Raises:
        PerfDoctorError: it cannot be had.
    """
    from perfdoctor.live.exporter import Server

    server = Server(host, port)
    print(f"perfdoctor: metrics at {server.url}", file=sys.stderr)
    return server


def send(path: Path, diagnosis: Diagnosis, otlp: str) -> None:
    """Sends the figures of a recording and its diagnosis.

    Raises:
        PerfDoctorError: they could not be sent; the recording is kept, and the hint says how to use it.
    """
    try:
        with Recording.open(path) as recording:
            Sender(otlp).send(figures(recording, diagnosis))
    except PerfDoctorError as error:
        again = f"perfdoctor export {path} --otlp http://HOST:4318"
        raise PerfDoctorError(
            str(error), hint=f"What was recorded is kept. Send it when the collector answers: {again}", recording=path
        ) from None
