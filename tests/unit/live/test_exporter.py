"""Figures of a recording that is followed, as Prometheus and a collector get them."""

import socket
import urllib.request
from pathlib import Path
from typing import cast

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from perfdoctor.errors import PerfDoctorError
from perfdoctor.exports.metrics import JobMetrics
from perfdoctor.exports.otlp import Sender
from perfdoctor.live import exporter
from perfdoctor.live.analyst import Analyst
from perfdoctor.live.exporter import Server, exporting
from perfdoctor.recording.schema import Event, ProcessGone
from perfdoctor.recording.writer import RecordingWriter
from tests.builders.collector import collecting
from tests.builders.jobs import START, at, process, readings
from tests.processes.attaching import until
from tests.recordings import corpus, packing


def scraped(url: str) -> dict[str, Metric]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def test_what_is_committed_is_scraped_and_stays(tmp_path: Path) -> None:
    server = Server("127.0.0.1", 0)
    with RecordingWriter(tmp_path / "a", {"start_ns": str(START)}) as writer:
        writer.add([*process(7), *readings("pid:7", "rss_bytes", 100.0)])
        writer.commit()
        with exporting(tmp_path / "a", server, None) as exporter:

            def resident() -> float | None:
                family = scraped(server.url).get("perfdoctor_test_rss_bytes")
                return family.samples[0].value if family else None

            assert until(lambda: resident() == 100.0)
            writer.add(readings("pid:7", "rss_bytes", 100.0, 300.0))
            writer.commit()
            assert until(lambda: resident() == 300.0)
            job_ended = [ProcessGone(at(1.5), 7), Event(at(2.0), "stopped", "job ended")]
            writer.add([*job_ended, *readings("host", "x", 1.0)])
            writer.commit()
            assert until(lambda: "perfdoctor_test_x" in scraped(server.url))
            assert resident() == 300.0
            (used,) = exporter.used()
            assert used.value is not None
            assert used.value > 0
    with pytest.raises(OSError, match="refused"):
        scraped(server.url)


def test_a_finished_recording_has_its_verdict_in_either_format(tmp_path: Path) -> None:
    packing.unpack(corpus.FOLDER / f"straggler_disk{corpus.SUFFIX}", tmp_path / "a")
    server = Server("::1", 0) if socket.has_ipv6 else Server("127.0.0.1", 0)
    with exporting(tmp_path / "a", server, None, beside_recorder=False):
        assert until(lambda: "perfdoctor_verdict_confidence" in scraped(server.url))
        wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
        with urllib.request.urlopen(urllib.request.Request(server.url, headers=wanted), timeout=30) as answer:
            families = list(openmetrics_families(answer.read().decode()))
    shares = next(family for family in families if family.name == "perfdoctor_cause_share")
    assert sum(one.value for one in shares.samples) == pytest.approx(1, abs=0.001)
    verdict = corpus.load("straggler_disk")["diagnosis"]["verdict"]
    (confidence,) = next(family for family in families if family.name == "perfdoctor_verdict_confidence").samples
    assert confidence.labels["cause"] == verdict["cause"]


def test_a_collector_gets_figures_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    samples = [*process(7), *readings("pid:7", "rss_bytes", 100.0)]
    with RecordingWriter(tmp_path / "a", {"start_ns": str(START), "started": "2026-03-01T12:00:00+0100"}) as writer:
        writer.add(samples)
    with collecting() as collector, exporting(tmp_path / "a", None, collector.url):
        assert until(lambda: len(collector.requests) >= 3)
    assert "perfdoctor_test_rss_bytes" in collector.metrics()


def test_a_port_that_is_taken_is_told_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PerfDoctorError, match=f"on port {port} of 127.0.0.1: Address already in use") as raised:
            Server("127.0.0.1", port)
    assert "--metrics-port" in raised.value.hint


def test_an_address_of_another_host_is_told_of() -> None:
    with pytest.raises(PerfDoctorError, match=r"of 203\.0\.113\.1: Cannot assign requested address") as raised:
        Server("203.0.113.1", 0)
    assert "--metrics-host" in raised.value.hint
    with pytest.raises(PerfDoctorError, match="There is no address"):
        Server("x" * 300, 0)


def test_whoever_goes_away_while_asking_disturbs_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = Server("127.0.0.1", 0)
    with RecordingWriter(tmp_path / "a", {"start_ns": str(START)}) as writer:
        writer.add(readings("host", "x", 1.0))
    with exporting(tmp_path / "a", server, None):
        host, port = server.server_address[:2]
        with socket.create_connection((str(host), port)) as asking:
            asking.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert until(lambda: "perfdoctor_test_x" in scraped(server.url))
    assert capfd.readouterr().err == ""


def test_when_the_recording_is_gone_there_are_no_figures_and_nothing_more_is_sent() -> None:
    class Gone:
        def newest(self) -> None:
            raise PerfDoctorError("The recording is gone.", hint="")

    analyst = cast("Analyst[JobMetrics]", Gone())
    assert list(exporter._metrics(analyst)) == []
    exporter._send(Sender("http://127.0.0.1:1"), analyst)
