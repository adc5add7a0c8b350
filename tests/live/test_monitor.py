"""A job that is watched for days, in a minute: it becomes slower, it is started again, perfdoctor is killed."""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.steps import StepsProbe
from perfdoctor.results.history import Appeared, Beat, Happened, Incident, Presence, Window
from tests.processes.attaching import Started, job, perfdoctor, refused, until
from tests.processes.monitoring import PACED, kept, monitoring

PATIENCE_S = 180.0


@pytest.fixture(scope="module", autouse=True)
def _counts() -> None:
    if (found := StepsProbe().check(Candidate(None))).state != "works":
        pytest.skip(f"steps cannot be counted here: {found.reason}")


@pytest.fixture
def paced() -> Iterator[Started]:
    with job(*PACED) as started:
        yield started


def of_pace(into: Path, since: float) -> list[Incident]:
    """What was told of the pace since then, as it is known last: on a busy machine there is more."""
    found = {one.number: one for one in kept(into, Incident) if one.what in (Happened.SLOWER, Happened.DIP)}
    return [one for one in found.values() if one.cause is not None and one.since > since]


@pytest.mark.alone
def test_a_job_that_becomes_slower_is_dated_with_its_cause(paced: Started, tmp_path: Path) -> None:
    with monitoring(paced.pid, tmp_path) as monitor:
        assert until(lambda: len(kept(tmp_path, Beat)) > 12 and kept(tmp_path, Window), PATIENCE_S)
        slowed = time.time()
        os.kill(paced.pid, signal.SIGUSR1)
        assert until(lambda: of_pace(tmp_path, slowed - 8), PATIENCE_S)
        incident = of_pace(tmp_path, slowed - 8)[0]
        assert incident.since == pytest.approx(slowed, abs=8)
        assert incident.values["after_s"] > 1.5 * incident.values["before_s"]
        assert incident.cause == "cpu.input_preprocessing"
        assert all((tmp_path / name).is_file() for name in incident.recordings)
        monitor.send_signal(signal.SIGTERM)
        out, err = monitor.communicate(timeout=PATIENCE_S)
    assert monitor.returncode == 0, err
    assert "slower: a step takes" in out
    assert kept(tmp_path, Presence)[-1].what is Appeared.INTERRUPTED
    shown = perfdoctor("monitor", "--history", tmp_path)
    assert shown.status == 0
    assert "slower: a step takes" in shown.out
    assert "perfdoctor compare window-" in shown.out


@pytest.mark.alone  # without steps a window of its own has to show it, and a busy machine makes these rare
@pytest.mark.parametrize("steps", [True, False])
def test_a_job_that_is_stuck_is_told_with_what_it_sits_in(paced: Started, tmp_path: Path, steps: bool) -> None:
    def silent(*, over: bool) -> list[Incident]:
        return [one for one in kept(tmp_path, Incident) if one.stuck == "stopped" and (one.until is not None) is over]

    with monitoring(paced.pid, tmp_path, steps=steps, window_s=7.0):
        assert until(lambda: kept(tmp_path, Window) and (not steps or len(kept(tmp_path, Beat)) > 6), PATIENCE_S)
        os.kill(paced.pid, signal.SIGSTOP)
        try:
            assert until(lambda: silent(over=False), PATIENCE_S)
        finally:
            os.kill(paced.pid, signal.SIGCONT)
        assert until(lambda: silent(over=True), PATIENCE_S)
    assert f"process {paced.pid} is stopped" in silent(over=True)[0].summary
    assert not [window for window in kept(tmp_path, Window) if window.stuck and window.shares]


def test_a_job_that_is_started_again_is_followed(tmp_path: Path) -> None:
    with job(*PACED) as first, monitoring(first.pid, tmp_path) as monitor:
        assert until(lambda: kept(tmp_path, Beat), PATIENCE_S)
        with job(*PACED, "--pause-ms", "30"):  # another command line: not this job
            first.process.kill()
            first.process.wait()
            assert until(lambda: kept(tmp_path, Presence)[-1].what is Appeared.ENDED, PATIENCE_S)
            with job(*PACED) as again:
                assert until(lambda: kept(tmp_path, Presence)[-1].what is Appeared.STARTED_AGAIN, PATIENCE_S)
                assert kept(tmp_path, Presence)[-1].pid == again.pid
                counted = len(kept(tmp_path, Beat))
                assert until(lambda: any(beat.steps for beat in kept(tmp_path, Beat)[counted:]), PATIENCE_S)
                monitor.terminate()
                monitor.communicate(timeout=PATIENCE_S)


def test_a_job_that_is_started_again_at_once_is_followed_without_its_steps(tmp_path: Path) -> None:
    with job(*PACED) as first, monitoring(first.pid, tmp_path, steps=False) as monitor:
        assert until(lambda: kept(tmp_path, Window), PATIENCE_S)
        first.process.kill()
        first.process.wait()
        with job(*PACED) as again:
            assert until(lambda: kept(tmp_path, Presence)[-1].what is Appeared.STARTED_AGAIN, PATIENCE_S)
            assert kept(tmp_path, Presence)[-1].pid == again.pid
            told = time.monotonic()
            monitor.terminate()
            monitor.communicate(timeout=PATIENCE_S)
            assert time.monotonic() - told < 15.0  # not when the next reading is due


@pytest.mark.parametrize("steps", [True, False])
def test_a_worker_that_its_launcher_replaces_is_another_trainer(tmp_path: Path, steps: bool) -> None:
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "1", "--max-restarts", "3", "--master-port", "0")
    with job(PACED[0], *torchrun, PACED[1]) as launcher, monitoring(launcher.pid, tmp_path, steps=steps):
        trainer = int(launcher.lines[-1].split()[1])
        assert until(lambda: kept(tmp_path, Beat if steps else Window), PATIENCE_S)
        os.kill(trainer, signal.SIGKILL)
        assert until(lambda: len(kept(tmp_path, Presence)) == 3, PATIENCE_S)
        found, ended, again = kept(tmp_path, Presence)
        assert (found.what, found.pid) == (Appeared.FOUND, launcher.pid)
        assert (ended.what, ended.pid) == (Appeared.ENDED, trainer)
        assert again.what is Appeared.STARTED_AGAIN
        assert again.pid not in (launcher.pid, trainer)


def test_who_is_not_started_again_is_given_up(tmp_path: Path) -> None:
    with job(*PACED) as only, monitoring(only.pid, tmp_path, wait_s=1.0) as monitor:
        assert until(lambda: kept(tmp_path, Presence), PATIENCE_S)
        only.process.kill()
        only.process.wait()
        out, err = monitor.communicate(timeout=PATIENCE_S)
    assert monitor.returncode == 0, err
    assert "not started again" in out


def test_what_was_counted_survives_a_kill(paced: Started, tmp_path: Path) -> None:
    with monitoring(paced.pid, tmp_path, beat_s=600.0) as monitor:
        assert until(lambda: last_call(tmp_path) - first_call(tmp_path) > 5, PATIENCE_S)
        # A second between two looks, another one of a busy machine.
        assert until(lambda: time.monotonic() - last_call(tmp_path) < 3.0, PATIENCE_S)
        seen_until = last_call(tmp_path)
        monitor.kill()
        monitor.wait()
    assert last_call(tmp_path) >= seen_until
    assert kept(tmp_path, Beat) == []
    with monitoring(paced.pid, tmp_path):
        assert until(lambda: kept(tmp_path, Beat), PATIENCE_S)
    recovered = kept(tmp_path, Beat)[0]
    assert recovered.lasted_s > 5
    assert recovered.steps > 50


def first_call(folder: Path) -> float:
    return _call(folder, "min")


def last_call(folder: Path) -> float:
    """When the last counted call in a folder's recording was made, on the one clock; 0 if there is none."""
    return _call(folder, "max")


def _call(folder: Path, which: str) -> float:
    path = folder / "counts-000001.perfdoctor"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return (db.execute(f"SELECT {which}(time_ns) FROM CountedCall").fetchone()[0] or 0) / 1e9
    except sqlite3.Error:
        return 0.0


def test_a_history_that_is_moved_away_is_begun_anew(paced: Started, tmp_path: Path) -> None:
    with monitoring(paced.pid, tmp_path):
        assert until(lambda: kept(tmp_path, Beat), PATIENCE_S)
        (tmp_path / "history.jsonl").rename(tmp_path / "history.jsonl.1")
        assert until(lambda: kept(tmp_path, Beat), PATIENCE_S)


def test_two_do_not_keep_their_history_in_one_folder(paced: Started, tmp_path: Path) -> None:
    with monitoring(paced.pid, tmp_path):
        assert until(lambda: kept(tmp_path, Presence), PATIENCE_S)
        refused(perfdoctor("monitor", paced.pid, "--into", tmp_path), "Another perfdoctor keeps its history in")


def test_no_history_is_one_sentence_and_the_next_move(tmp_path: Path) -> None:
    refused(perfdoctor("monitor", "--history", tmp_path), "There is no history in", "perfdoctor monitor PID --into")


@pytest.mark.alone
def test_the_watching_is_light(paced: Started, tmp_path: Path) -> None:
    """No numpy, no pandas, and the probes of `attach` in a process that ends with its window."""
    with monitoring(paced.pid, tmp_path, every_s=600.0) as monitor:
        assert until(lambda: kept(tmp_path, Window), PATIENCE_S)
        mapped = subprocess.run(["grep", "-c", "numpy", f"/proc/{monitor.pid}/maps"], capture_output=True, check=False)
    assert mapped.stdout.strip() == b"0"
