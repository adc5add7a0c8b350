"""Figures sent over OTLP, the protocol of OpenTelemetry, through its SDK.

Where to, with which headers, certificate and timeout is said by the SDK's own environment variables
(opentelemetry.io/docs/specs/otel/protocol/exporter).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from perfdoctor import __version__
from perfdoctor.errors import PerfDoctorError
from perfdoctor.exports.metrics import ExportedMetric, JobMetrics
from perfdoctor.recording.clock import epoch_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export as sdk

_PATH = "/v1/metrics"
_DEFAULT_INTERVAL_S = 60.0  # as OpenTelemetry has it (OTEL_METRIC_EXPORT_INTERVAL)
# Where the reason stands in what the exporter says: of a connection, of what it would try again, of what it would not.
_REASONS = tuple(map(re.compile, (r"\[Errno -?\d+\] ([^\"')]+)", r"error (.+) encountered", r"reason: (.+)")))


def require_sdk() -> None:
    """Makes sure that OpenTelemetry's SDK is there.

    Raises:
        PerfDoctorError: it is not.
    """
    try:
        found = find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise PerfDoctorError(
            "OTLP needs OpenTelemetry's SDK, which is not installed.", hint="pip install 'perfdoctor[otlp]'"
        )


def interval_s() -> float:
    """How often a job's figures are sent while it is watched: ``OTEL_METRIC_EXPORT_INTERVAL``, a minute by default."""
    try:
        asked_s = float(os.environ["OTEL_METRIC_EXPORT_INTERVAL"]) / 1000
    except (KeyError, ValueError):
        return _DEFAULT_INTERVAL_S
    return asked_s if asked_s > 0 else _DEFAULT_INTERVAL_S


class Sender:
    """Sends figures to a collector.

    Args:
        endpoint: its address, ``http://localhost:4318`` for instance; by the environment variables if empty.
    """

    def __init__(self, endpoint: str = "") -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        whole = endpoint.rstrip("/").removesuffix(_PATH) + _PATH if endpoint else None
        self._exporter = OTLPMetricExporter(endpoint=whole)
        self._said = _Said()

    def send(self, figures: JobMetrics) -> None:
        """Sends them; tries again for some seconds where the collector is busy or cannot be reached.

        Raises:
            PerfDoctorError: it did not take them, or the recording does not say when it began.
        """
        from opentelemetry.sdk.metrics.export import MetricExportResult

        with self._said:
            result = self._exporter.export(_data(figures))
        if result is not MetricExportResult.SUCCESS:
            raise PerfDoctorError(
                f"The figures could not be sent over OTLP: {self._said.why}.",
                hint="Name the collector, --otlp http://HOST:4318 for instance, or set OTEL_EXPORTER_OTLP_ENDPOINT.",
            )


class _Said(logging.Handler):
    """Keeps what the exporter logs: it says there only why it has failed."""

    def __init__(self) -> None:
        super().__init__()
        self._logger = logging.getLogger("opentelemetry.exporter.otlp")
        self._messages: list[str] = []

    def __enter__(self) -> None:
        self._messages.clear()
        self._logger.addHandler(self)
        self._logger.propagate = False

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True

    @property
    def why(self) -> str:
        """Why, in brief where its words are known."""
        said = next(iter(self._messages), "it does not say why")
        found = next((match for pattern in _REASONS if (match := pattern.search(said))), None)
        return (found[1] if found else said).rstrip(".")

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


def _data(figures: JobMetrics) -> sdk.MetricsData:
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    zero_ns = _zero_ns(figures.meta)
    metrics = [_metric(metric, zero_ns) for metric in figures.metrics]
    scope = ScopeMetrics(InstrumentationScope("perfdoctor", __version__), metrics, "")
    # What the user says in OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME comes first.
    resource = Resource.create(_resource(figures.meta)).merge(OTELResourceDetector().detect())
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _resource(meta: Mapping[str, str]) -> dict[str, Any]:
    """What the figures are about, by OpenTelemetry's names (semantic conventions for resources)."""
    about: dict[str, Any] = {"service.name": "perfdoctor", "service.version": __version__}
    if host := meta.get("host"):
        about["host.name"] = host
    if pid := meta.get("asked_pid"):
        about["process.pid"] = int(pid)
    return about


def _metric(metric: ExportedMetric, zero_ns: int) -> sdk.Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, NumberDataPoint, Sum
    from opentelemetry.sdk.metrics.export import Metric as Sent

    # Since when a counter counts is not known of most: 0 says so.
    points = [NumberDataPoint(dict(one.labels), 0, zero_ns + one.time_ns, one.value) for one in metric.points]
    data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if metric.grows else Gauge(points)
    return Sent(metric.name, metric.says, metric.unit, data)


def _zero_ns(meta: Mapping[str, str]) -> int:
    """What the time since 1970 was when the one clock stood at zero, as the recording says it.

    Raises:
        PerfDoctorError: it does not say.
    """
    try:
        return epoch_of(meta)
    except (KeyError, ValueError):
        raise PerfDoctorError(
            "The recording does not say when it began, which OTLP asks for.", hint="Use --to prometheus FILE.prom."
        ) from None
