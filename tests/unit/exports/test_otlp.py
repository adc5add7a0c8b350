"""Figures that are sent over OTLP, as a collector gets them: the same as Prometheus reads."""

import sys
from datetime import datetime
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from prometheus_client.parser import text_string_to_metric_families

from perfdoctor.__main__ import main
from perfdoctor.exports import otlp
from perfdoctor.exports.metrics import ExportedMetric as Defined
from perfdoctor.exports.metrics import LastReadings, figures
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Reading
from tests.builders.collector import Collector, collecting
from tests.builders.jobs import START, at, process, readings, write
from tests.recordings import corpus, packing

STARTED = "2026-03-01T12:00:00+0100"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    samples = [
        *process(7),
        *readings("pid:7", "rss_bytes", 100.0, None),
        *readings("pid:7", "run_seconds_total", 1.0, 1.5),
        *readings('mount:/a"b', "full_fraction", 0.5),
    ]
    return write(tmp_path / "job.perfdoctor", samples, started=STARTED, host="box", asked_pid="7")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a real job, with a verdict."""
    file = tmp_path_factory.mktemp("real") / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"straggler_disk{corpus.SUFFIX}", file)
    return file


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a collector of their own."""
    for name in ("OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ENDPOINT", "HEADERS", "METRICS_ENDPOINT", "METRICS_HEADERS", "TIMEOUT", "METRICS_TIMEOUT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


def sent(recording: Path, collector: Collector) -> dict[str, Metric]:
    assert main(["export", str(recording), "--otlp", collector.url]) == 0
    return collector.metrics()


def values(metric: Metric) -> dict[tuple[tuple[str, str], ...], float]:
    """Those of a metric, by labels."""
    points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
    return {tuple(sorted((one.key, one.value.string_value) for one in p.attributes)): p.as_double for p in points}


def test_a_collector_gets_what_prometheus_reads(real: Path) -> None:
    text = real.with_name("out.prom")
    assert main(["export", str(real), "--to", "prometheus", str(text), "--force"]) == 0
    families = list(text_string_to_metric_families(text.read_text()))
    with collecting() as collector:
        got = sent(real, collector)
    scraped = {one.samples[0].name: one for one in families}
    assert scraped.keys() == got.keys()
    assert len(got) > 50
    for name, family in scraped.items():
        assert got[name].description == family.documentation
        assert got[name].HasField("sum") == (family.type == "counter")
        assert values(got[name]) == {tuple(sorted(one.labels.items())): one.value for one in family.samples}


def test_each_value_has_its_time_its_unit_and_what_it_is_about(made: Path) -> None:
    with collecting() as collector:
        got = sent(made, collector)
    began_ns = int(datetime(2026, 3, 1, 11).timestamp() - datetime(1970, 1, 1).timestamp()) * 10**9
    (resident,) = got["perfdoctor_test_rss_bytes"].gauge.data_points
    assert (resident.as_double, resident.time_unix_nano) == (100.0, began_ns)
    grows = got["perfdoctor_test_run_seconds_total"].sum
    assert grows.is_monotonic
    assert grows.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    (run,) = grows.data_points
    assert (run.as_double, run.time_unix_nano, run.start_time_unix_nano) == (1.5, began_ns + 10**9, 0)
    assert [got[f"perfdoctor_test_{name}"].unit for name in ("rss_bytes", "run_seconds_total", "full_fraction")] == [
        "By", "s", "",
    ]  # fmt: skip
    assert list(values(got["perfdoctor_test_full_fraction"])) == [(("subject", 'mount:/a"b'),)]
    about = collector.about()
    assert (about["service.name"], about["host.name"], about["process.pid"]) == ("perfdoctor", "box", 7)


def test_units_are_the_ends_of_names() -> None:
    names = {"pcie_sent_bytes_per_second": "By/s", "energy_joules_total": "J", "sm_clock_hertz": "Hz", "threads": ""}
    assert {name: Defined(name, "", ()).unit for name in names} == names


@pytest.mark.parametrize("endpoint", ["{}", "{}/", "{}/v1/metrics"])
def test_a_collector_is_named_by_its_address(endpoint: str, made: Path) -> None:
    with collecting() as collector:
        assert main(["export", str(made), "--otlp", endpoint.format(collector.url)]) == 0
    assert collector.paths == ["/v1/metrics"]


def test_the_environment_says_the_rest(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{collector.url}/tenant")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=vision")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "llm")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=node-3")
        assert main(["export", str(made), "--otlp"]) == 0
    assert collector.paths == ["/tenant/v1/metrics"]
    assert collector.headers[0]["x-team"] == "vision"
    assert (collector.about()["service.name"], collector.about()["host.name"]) == ("llm", "node-3")


def refused(capsys: pytest.CaptureFixture[str], recording: Path, *arguments: str) -> tuple[str, str]:
    assert main(["export", str(recording), *arguments]) == 1
    sentence, move = capsys.readouterr().err.splitlines()
    return sentence, move


def test_a_collector_that_refuses_is_told_of(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with collecting() as collector:
        collector.status = 401
        sentence, move = refused(capsys, made, "--otlp", collector.url)
    assert sentence == "perfdoctor: The figures could not be sent over OTLP: Unauthorized."
    assert "--otlp http://HOST:4318" in move


def test_a_collector_that_is_not_there_is_told_of(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    sentence, _ = refused(capsys, made, "--otlp", collector.url)
    assert sentence.endswith("over OTLP: Connection refused.")


def test_a_recording_that_does_not_say_when_it_began_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence, move = refused(capsys, write(tmp_path / "a", process(7)), "--otlp", "http://127.0.0.1:1")
    assert "does not say when it began" in sentence
    assert "--to prometheus" in move


def test_without_the_sdk_it_says_what_to_install(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    sentence, move = refused(capsys, made, "--otlp", "http://127.0.0.1:1")
    assert "SDK, which is not installed" in sentence
    assert move.strip() == "pip install 'perfdoctor[otlp]'"


def test_wrong_usage_is_told_from_what_cannot_be_done(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(made), "--otlp", "collector:4318"]) == 2
    assert "must be a collector's address" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["export", str(made)])
    assert "--to and --otlp" in capsys.readouterr().err


def test_an_interval_that_is_none_is_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for text in ("2500", "often", "0"):
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", text)
        found.append(otlp.interval_s())
    assert found == [2.5, 60.0, 60.0]


def test_what_processes_left_is_forgotten_and_all_else_is_kept() -> None:
    last = LastReadings()
    subjects = ("pid:7", "gpu:0/pid:7", "neighbour:8", "mount:/dev/shm", "gpu:0")
    last.add(Reading(START, "test", subject, "x", 1.0) for subject in subjects)
    last.add([Reading(at(59), "test", "host", "y", 1.0)])
    assert [len(metric.points) for metric in last.metrics()] == [5, 1]
    last.add([Reading(at(61), "test", "host", "y", 1.0)])
    kept, _ = last.metrics()
    assert [point.labels["subject"] for point in kept.points] == ["gpu:0", "mount:/dev/shm"]


def test_figures_of_any_recording_can_be_made(real: Path) -> None:
    from perfdoctor.analysis.from_recording import examine

    with Recording.open(real) as recording:
        made = figures(recording, examine(recording))
        names = [metric.name for metric in made.metrics]
        assert len(names) == len(set(names))
        newest = max(point.time_ns for metric in made.metrics for point in metric.points)
        assert newest == recording.end_ns


def test_times_are_those_of_the_recordings_own_comparison_of_its_clocks(tmp_path: Path) -> None:
    """When it began is known to the second only."""
    made = write(tmp_path / "a", readings("pid:7", "rss_bytes", 100.0), started=STARTED, epoch_ns="1700000000123456789")
    with collecting() as collector:
        (point,) = sent(made, collector)["perfdoctor_test_rss_bytes"].gauge.data_points
    assert point.time_unix_nano == 1_700_000_000_123_456_789 + START
