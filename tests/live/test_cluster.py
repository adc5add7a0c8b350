"""``perfdoctor analyze`` on a real Dask cluster, and of files behind a URL."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from perfdoctor.__main__ import main
from perfdoctor.cluster.fan_out import Dask, fan_out
from tests.builders.rank_traces import MadeJob
from tests.processes.fanning import kill_once

distributed = pytest.importorskip("distributed")

RANKS = 6


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    job = MadeJob(RANKS)
    for _ in range(10):
        begun = list(job.now)
        for rank in range(RANKS):
            job.load(rank, 5000.0 if rank == 2 else 100.0)
            job.compute(rank, 4000.0)
        job.meet(1000.0)
        job.step(begun)
    job.write(tmp_path / "traces")
    return tmp_path / "traces"


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    quiet = {"silence_logs": 50, "dashboard_address": None}
    # Dask sets variables for its workers, and leaves them set.
    with (
        patch.dict(os.environ),
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, **quiet) as made,
    ):
        yield made


def analyzed(address: str, folder: Path, *options: str) -> dict[str, Any]:
    told = folder / "out.json"
    kept = str(folder / "kept.sqlite")
    assert main(["analyze", address, "--json", str(told), "--force", "--summaries", kept, *options]) == 0
    return dict(json.loads(told.read_text()))


def test_a_cluster_says_what_processes_here_say_and_a_killed_worker_changes_nothing(
    traces: Path, tmp_path: Path
) -> None:
    here = analyzed(str(traces), tmp_path)
    (tmp_path / "kept.sqlite").unlink()
    with cluster(2) as made:
        address = made.scheduler_address
        there = analyzed(str(traces), tmp_path, "--scheduler", address)
        engine = Dask(address)
        try:
            orders = [(str(tmp_path), number) for number in range(12)]
            done = {one.item[1]: one.result for one in fan_out(kill_once, orders, engine)}
        finally:
            engine.close()
    assert here["verdict"] == there["verdict"]
    assert here["verdict"]["straggler_rank"] == 2
    assert here["ranks"] == there["ranks"]
    assert (tmp_path / "killed").exists()
    assert done == {number: 2 * number for number in range(12)}


def test_a_scheduler_that_is_not_there_is_one_sentence(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfdoctor.cluster.fan_out._CONNECT_S", 0.5)
    kept = str(tmp_path / "kept.sqlite")
    assert main(["analyze", str(traces), "--scheduler", "tcp://127.0.0.1:1", "--summaries", kept]) == 1
    assert "There is no Dask scheduler at tcp://127.0.0.1:1" in capsys.readouterr().err


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder over HTTP."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_files_behind_a_url_are_read_as_those_here(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fsspec")
    here = analyzed(str(traces), tmp_path)
    with served(traces) as url:
        there = analyzed(url, tmp_path)
        assert main(["analyze", url + "none/", "--summaries", str(tmp_path / "kept.sqlite")]) == 1
    assert here["verdict"] == there["verdict"]
    assert "There is nothing at" in capsys.readouterr().err
