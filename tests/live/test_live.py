"""A live view on a real terminal, of a real job, and a job's figures for others while it is watched."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.builders.collector import collecting
from tests.files import ROOT
from tests.processes.attaching import (
    ENVIRONMENT,
    PATIENCE_S,
    TRAINING,
    Started,
    attached,
    is_a_diagnosis,
    is_watched,
    job,
    perfdoctor,
    refused,
    until,
    watched_for,
)
from tests.processes.screens import on_terminal
from tests.recordings import corpus, packing


@pytest.fixture(scope="module")
def training() -> Iterator[Started]:
    with job(*TRAINING, "--wait-ms", "0.5", "--workers", "1") as started:
        yield started


def test_a_job_is_shown_until_q_is_pressed_and_then_reported(training: Started, tmp_path: Path) -> None:
    told, page = tmp_path / "a.json", tmp_path / "a.html"
    with on_terminal(
        "attach", training.pid, "--live", "--json", told, "--report", page, columns=50, lines=12
    ) as screen:
        before = screen.settings()
        assert screen.shows("This terminal is too small")
        screen.resize(110, 36)
        assert screen.shows("watched for", f"{training.pid} trainer", " worker", "cores", "memory"), screen.text
        assert screen.shows("Sleeping while the input is prepared"), screen.text
        assert screen.lines[-1].endswith("q quit")
        screen.resize(80, 24)
        assert screen.shows("q quit")
        assert until(lambda: screen.shows("q quit", seconds=1) and screen.lines[23].endswith("q quit")), screen.text
        screen.press("/nanosleep\r")
        assert screen.shows("filter: nanosleep (1 of 2 processes)"), screen.text
        screen.press("\x1b\r")
        assert screen.shows(f"trainer, process {training.pid}", "Threads, busiest first"), screen.text
        screen.press("\x7f")
        assert screen.shows("confidence", "about seconds", "sleeping while"), screen.text
        screen.press("q")
        assert screen.ended() == 0, screen.written
        assert screen.settings() == before
        assert "\x1b[?1049l" in screen.written
        assert "What this diagnosis cost" in screen.written.rpartition("\x1b[?1049l")[2]
    answer = json.loads(told.read_text())
    is_a_diagnosis(answer)
    assert answer["job"]["stopped"] == "interrupted"
    assert page.stat().st_size > 10_000
    assert not is_watched(training.pid)


def test_a_recording_is_followed_and_then_gone_through(training: Started, tmp_path: Path) -> None:
    kept = tmp_path / "a.recording"
    with attached(training.pid, "--duration", "7", "--recording", kept) as watching:
        assert until(lambda: watched_for(kept, 0.5))
        with on_terminal("watch", kept) as screen:
            assert screen.shows("watched for", f"{training.pid} trainer", "names when you quit"), screen.text
            out, err = watching.communicate(timeout=60)
            assert watching.returncode == 0, err
            assert screen.shows("recording ended,", out.splitlines()[0], "left/right 1 s"), screen.text
            screen.press("\x1b[H")
            assert screen.shows("recording ended, 0 s of", out.splitlines()[0]), screen.text
            screen.press("q")
            assert screen.ended() == 0


def test_a_finished_recording_is_shown_in_chinese_and_its_figures_are_sent(tmp_path: Path) -> None:
    kept = tmp_path / "a.recording"
    packing.unpack(corpus.FOLDER / f"straggler_disk{corpus.SUFFIX}", kept)
    verdict = corpus.load("straggler_disk")["diagnosis"]["verdict"]
    with collecting() as collector, on_terminal("watch", kept, "--lang", "zh", "--otlp", collector.url) as screen:
        assert screen.shows("的作业", "瓶颈", "置信度", "角色", "训练进程", "q 退出"), screen.text
        assert until(lambda: bool(collector.requests))
        screen.press("q")
        assert screen.ended() == 0
    (confidence,) = collector.metrics()["perfdoctor_verdict_confidence"].gauge.data_points
    assert confidence.as_double == pytest.approx(verdict["confidence"], abs=1e-3)


def test_a_job_that_ends_while_it_is_shown_is_reported(tmp_path: Path) -> None:
    with job(*TRAINING, "--wait-ms", "0.5") as short, on_terminal("attach", short.pid, "--live") as screen:
        assert screen.shows(f"{short.pid} trainer"), screen.text
        os.kill(short.pid, signal.SIGKILL)
        assert screen.ended() in (0, 1), screen.written
        assert "with the job" in screen.written.rpartition("\x1b[?1049l")[2]


def test_a_terminal_that_is_closed_ends_the_watching_and_nothing_is_lost(training: Started, tmp_path: Path) -> None:
    told, kept = tmp_path / "a.json", tmp_path / "a.recording"
    with on_terminal("attach", training.pid, "--live", "--json", told, "--recording", kept) as screen:
        assert screen.shows(f"{training.pid} trainer"), screen.text
        recorder = screen.program.pid
        viewers = Path(f"/proc/{recorder}/task/{recorder}/children").read_text().split()
        assert until(lambda: watched_for(kept, 0.5))
        screen.close()
        assert until(told.exists)
        assert until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in viewers))
    is_a_diagnosis(json.loads(told.read_text()))
    assert training.process.poll() is None


def test_without_a_terminal_it_says_so_before_the_job_is_touched(training: Started) -> None:
    how = {"start_new_session": True, "env": {**ENVIRONMENT, "TERM": "xterm"}}
    refused(perfdoctor("attach", training.pid, "--live", **how), "no terminal", "without --live")
    refused(perfdoctor("watch", ROOT / "README.md", **how), "no terminal", "perfdoctor report")


def test_what_is_no_recording_is_not_shown(tmp_path: Path) -> None:
    with on_terminal("watch", ROOT / "README.md") as screen:
        assert screen.ended() == 1
        assert "is not a perfdoctor recording" in screen.text


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
