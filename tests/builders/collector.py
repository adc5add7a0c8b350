"""A collector of OpenTelemetry's: a real HTTP server that reads what it gets with the protocol's own messages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


@dataclass
class Collector:
    """What it has got.

    Attributes:
        url: its address.
        status: what it answers.
        paths: where each request went.
        headers: those of each request.
        requests: what each of them held.
    """

    url: str = ""
    status: int = 200
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)

    def metrics(self) -> dict[str, Metric]:
        """Those of the last request, by name."""
        (resource,) = self.requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def about(self) -> dict[str, str | int]:
        """What the last request says that its metrics are about."""
        (resource,) = self.requests[-1].resource_metrics
        return {one.key: one.value.string_value or one.value.int_value for one in resource.resource.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Listens on a free port of this host."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.paths.append(self.path)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.requests.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()
