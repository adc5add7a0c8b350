"""Figures in Prometheus' text format: for the textfile collector of node_exporter, or scraped over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from perfdoctor.exports.metrics import ExportedMetric


def render(metrics: Iterable[ExportedMetric]) -> bytes:
    """The text."""
    return generate_latest(_registry(lambda: metrics))


def application(newest: Callable[[], Iterable[ExportedMetric]]) -> Callable[..., Any]:
    """A WSGI application that answers each scrape, in the text format or in OpenMetrics' as it is asked for.

    Args:
        newest: the figures by now; called from any thread.
    """
    return make_wsgi_app(_registry(newest))


def _registry(newest: Callable[[], Iterable[ExportedMetric]]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_NewestCollector(newest))
    return registry


class _NewestCollector(Collector):
    """Asks for the figures at each scrape."""

    def __init__(self, newest: Callable[[], Iterable[ExportedMetric]]) -> None:
        self._newest = newest

    def collect(self) -> Iterator[Family]:
        return map(_family, self._newest())


def _family(metric: ExportedMetric) -> Family:
    kind = CounterMetricFamily if metric.grows else GaugeMetricFamily
    family = kind(metric.name, metric.says, labels=list(metric.points[0].labels))
    for point in metric.points:
        family.add_metric(list(point.labels.values()), point.value)
    return family
