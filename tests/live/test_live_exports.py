"""A job's figures for others while it is watched, by the command as users run it."""

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.builders.collector import collecting
from tests.processes.attaching import PATIENCE_S, TRAINING, attached, job, perfdoctor, refused, until


def test_a_job_is_scraped_while_it_is_watched_and_reported_to_a_collector(tmp_path: Path) -> None:
    told = tmp_path / "a.json"
    with job(*TRAINING, "--wait-ms", "0.5") as training, collecting() as collector:
        words = ("--duration", "600", "--metrics-port", "0", "--otlp", collector.url, "--json", told)
        with attached(training.pid, *words, stdout=subprocess.DEVNULL) as watching:
            assert watching.stderr is not None
            said, url = watching.stderr.readline().rsplit(maxsplit=1)
            assert said == "perfdoctor: metrics at"

            def scraped(name: str) -> list[dict[str, str]]:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    families = text_string_to_metric_families(answer.read().decode())
                return [one.labels for family in families for one in family.samples if one.name.endswith(name)]

            assert until(lambda: scraped("cpu_threads") == [{"subject": f"pid:{training.pid}"}])
            assert until(lambda: scraped("cause_share"), PATIENCE_S)
            watching.send_signal(signal.SIGINT)
            assert watching.wait(120) == 0, watching.stderr.read()
        with pytest.raises(urllib.error.URLError):
            scraped("cpu_threads")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            answer = perfdoctor("attach", training.pid, "--metrics-port", taken.getsockname()[1])
        refused(answer, "Address already in use", "--metrics-port")
        assert training.process.poll() is None
    diagnosis = json.loads(told.read_text())
    shares = collector.metrics()["perfdoctor_cause_share"].gauge.data_points
    breakdown = {line["cause"]: line["share"] for line in diagnosis["breakdown"]}
    assert {one.attributes[0].value.string_value: one.as_double for one in shares} == pytest.approx(breakdown, abs=1e-3)
