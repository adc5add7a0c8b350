"""attach --trace enters jobs that nobody prepared, and leaves them as they were."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from perfdoctor.analysis.from_recording import examine
from perfdoctor.recording.reader import Recording
from tests.files import TARGETS
from tests.processes.attaching import ENVIRONMENT, WITHOUT_PTRACE, attached, job, needs_root, perfdoctor, until
from tests.processes.tracing import (
    JOB,
    costs,
    folders,
    left_in,
    names,
    profiles,
    ranks,
    reasons,
    state,
    take,
    told_by,
    traced_job,
    while_traced,
)

pytestmark = pytest.mark.usefixtures("working_gdb")


@pytest.fixture(autouse=True)
def _removes_its_folders():
    before = set(folders())
    yield
    assert until(lambda: not set(folders()) - before)


def test_a_trace_of_an_unmodified_job_and_nothing_left_in_it() -> None:
    with traced_job("plain") as started:
        before = state(started)
        found = take(started.pid)
        assert reasons(found) == ""
        seen = names(profiles(found)[started.pid])
        assert seen.count("Optimizer.step#SGD.step") >= 3
        assert "aten::addmm" in seen
        assert "autograd::engine::evaluate_function: AddmmBackward0" in seen
        (cost,) = costs(found)
        assert cost.way == "gdb"
        assert 0 < cost.traced_ns < 7e9
        assert cost.stopped_ns > 0
        assert cost.held_ns
        assert until(lambda: left_in(before, state(started)) == {}), left_in(before, state(started))
        # A second time it is no different.
        assert take(started.pid)
        assert until(lambda: left_in(before, state(started)) == {}), left_in(before, state(started))


@pytest.mark.parametrize("options", [("--threads", "300"), ("--compiled",)], ids=["many threads", "compiled"])
def test_jobs_of_other_kinds(options: tuple[str, ...]) -> None:
    with traced_job("plain", *options) as started:
        found = take(started.pid)
        assert reasons(found) == ""
        assert "Optimizer.step#SGD.step" in names(profiles(found)[started.pid])


def test_the_training_in_another_thread() -> None:
    with traced_job("in_thread") as started:
        before = state(started)
        found = take(started.pid, functions=True)
        assert "aten::addmm" in names(profiles(found)[started.pid])
        (loop,) = (rank.loop for rank in ranks(found))
        assert loop.summary()["phases"].keys() >= {"forward", "backward", "optimizer"}
        # No thread keeps the function that records what it calls.
        assert until(lambda: left_in(before, state(started)) == {}), left_in(before, state(started))


def test_steps_phases_and_functions_of_an_unmodified_job() -> None:
    with traced_job("fetching") as started:
        before = state(started)
        found = take(started.pid, functions=True)
        assert reasons(found) == ""
        (rank,) = ranks(found)
        told = rank.loop.summary()
        assert told["count"] >= 3
        assert not told["marked"]
        assert told["phases"].keys() == {"data", "forward", "backward", "optimizer", "other"}
        assert sum(phase["share"] for phase in told["phases"].values()) == pytest.approx(1)
        functions = [line["line"].partition(" ")[2] for line in told["lines"]]
        assert functions[0] == "step"
        assert until(lambda: left_in(before, state(started)) == {}), left_in(before, state(started))


def test_functions_that_somebody_watches_already_are_left_alone() -> None:
    with traced_job("watched") as started:
        before = state(started)
        found = take(started.pid, functions=True)
        assert "watched by a function that sys.setprofile" in reasons(found)
        assert not profiles(found)
        assert until(lambda: left_in(before, state(started)) == {}), left_in(before, state(started))
        assert profiles(take(started.pid)), "operators are recorded all the same"


def test_workers_forked_meanwhile_record_nothing() -> None:
    with traced_job("epochs") as started:
        before = state(started)
        with while_traced(started.pid) as found:
            pass
        events = profiles(found)[started.pid]["traceEvents"]
        assert {event["pid"] for event in events if event.get("cat") == "cpu_op"} == {started.pid}
        # Loaders come and go, with their threads, pipes and handlers.
        kept = ("wrapped", "profiling", "objects", "names", "modules", "environment")
        assert until(lambda: all(before[name] == state(started)[name] for name in kept))


def test_a_main_thread_that_waits_is_left_alone() -> None:
    with traced_job("in_thread_joined") as started:
        found = take(started.pid)
        assert "ran no Python code" in reasons(found)
        assert not profiles(found)


def test_a_long_call_is_not_waited_for_and_nothing_happens_after_it() -> None:
    environment = {**ENVIRONMENT, "LONG_CALL_S": "20"}
    with traced_job("long_call", env=environment) as started:
        before = state(started)
        found = take(started.pid)
        assert "ran no Python code" in reasons(found)
        started.wait_for("returned")
        assert left_in(before, after := state(started)) == {}
        assert after["threads"] == before["threads"]


def test_a_profiler_of_the_jobs_own_is_left_alone() -> None:
    with traced_job("profiled") as started:
        found = take(started.pid)
        assert "uses torch.profiler itself" in reasons(found)


def test_gives_way_to_a_profiler_of_the_jobs_own(tmp_path: Path) -> None:
    when = tmp_path / "now"
    with traced_job("profiled_later", env={**ENVIRONMENT, "PROFILE_WHEN": str(when)}) as started:
        before = state(started)
        with while_traced(started.pid) as found:
            when.touch()
            assert started.wait_for("profiled") == 10
        assert "uses torch.profiler itself" in reasons(found)
        assert until(lambda: left_in(before, state(started)) == {}), left_in(before, state(started))


def test_a_job_that_ends_while_traced_ends_as_it_would() -> None:
    with traced_job("plain") as started:
        with while_traced(started.pid) as found:
            started.process.send_signal(signal.SIGTERM)
            assert started.process.wait(30) == 0
        assert "ended before" in reasons(found)


def test_a_job_that_is_killed_while_traced() -> None:
    with traced_job("plain") as started:
        with while_traced(started.pid) as found:
            started.process.kill()
        assert "ended before" in reasons(found)


def test_a_stopped_job_is_left_alone() -> None:
    with traced_job("plain") as started:
        started.process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{started.pid}/status")
        assert until(lambda: "State:\tT" in status.read_text())
        found = take(started.pid)
        started.process.send_signal(signal.SIGCONT)
        assert "is stopped" in reasons(found)


def test_a_job_without_torch_is_left_alone() -> None:
    with job(sys.executable, "-c", "import time; print('ready 0', flush=True); time.sleep(60)") as started:
        assert "not loaded PyTorch" in reasons(take(started.pid))


def test_one_at_a_time() -> None:
    with traced_job("plain") as started, while_traced(started.pid) as found:
        again = take(started.pid)
    assert "Another perfdoctor" in reasons(again)
    assert profiles(found)


def test_without_gdb_the_reasons_of_all_ways_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with traced_job("plain") as started:
        monkeypatch.setenv("PATH", "/nonexistent")
        said = reasons(take(started.pid))
    for words in ("not started with KINETO_USE_DAEMON", "sys.remote_exec came with", "gdb is not installed"):
        assert words in said


def test_another_debugger_is_not_disturbed() -> None:
    with traced_job("plain") as started:
        debugger = subprocess.Popen(
            ["gdb", "-batch", "-nx", "--readnever", "-p", str(started.pid), "-ex", "shell sleep 60"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        status = Path(f"/proc/{started.pid}/status")
        try:
            assert until(lambda: "TracerPid:\t0\n" not in status.read_text())
            assert "is debugging process" in reasons(take(started.pid))
        finally:
            debugger.kill()
            debugger.wait()


@needs_root
def test_a_job_of_another_user() -> None:
    with job("setpriv", "--reuid", "65534", "--clear-groups", *JOB, "plain") as started:
        found = take(started.pid)
        assert reasons(found) == ""
        assert profiles(found)


@needs_root
def test_check_says_why_a_process_may_not_be_entered() -> None:
    with traced_job("plain") as started:
        answer = perfdoctor("check", started.pid, prefix=WITHOUT_PTRACE)
    assert "`attach --trace` takes" in answer.out


def test_when_perfdoctor_is_killed_the_job_stops_the_profiler_itself() -> None:
    with traced_job("plain") as started:
        before = state(started)
        with attached(started.pid, "--duration", "1", "--trace") as watching:
            assert until(lambda: sum(line.startswith("started ") for line in told_by(started.pid)) == 2, 60)
            os.killpg(watching.pid, signal.SIGKILL)
            watching.wait()
        assert until(lambda: not told_by(started.pid), 60)
        assert until(lambda: left_in(before, state(started)) == {}), left_in(before, state(started))


def test_two_ranks_at_the_same_time() -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    with job(*launcher, str(TARGETS / "job_ranks.py"), ready="") as started:
        pids = [started.wait_for("rank"), started.wait_for("rank")]
        found = take(*pids)
        assert reasons(found) == ""
        spans = []
        for pid, one in profiles(found).items():
            times = [event["ts"] for event in one["traceEvents"] if event.get("cat") == "cpu_op"]
            spans.append((min(times), max(times)))
            assert one["distributedInfo"]["world_size"] == 2
            assert pid in pids
        (first, last), (other_first, other_last) = spans
        assert max(first, other_first) < min(last, other_last), "one after the other"
        assert len(costs(found)) == 2


def test_kineto_is_asked_where_it_asks_for_a_daemon() -> None:
    with traced_job("plain", env={**ENVIRONMENT, "KINETO_USE_DAEMON": "1"}) as started:
        before = state(started)
        found = take(started.pid)
        assert reasons(found) == ""
        (cost,) = costs(found)
        assert (cost.way, cost.stopped_ns, cost.held_ns) == ("kineto", 0, None)
        assert names(profiles(found)[started.pid]).count("Optimizer.step#SGD.step") >= 3
        assert until(lambda: left_in(before, state(started)) == {}), left_in(before, state(started))


def test_where_kinetos_daemon_is_somebody_else_the_next_way_is_taken() -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dynolog,
        traced_job("plain", env={**ENVIRONMENT, "KINETO_USE_DAEMON": "1"}) as started,
    ):
        dynolog.bind(b"\0dynolog\0")
        (cost,) = costs(take(started.pid))
    assert cost.way == "gdb"


def test_the_samples_account_of_a_cpu_job_stands(tmp_path: Path) -> None:
    with traced_job("plain", "--pause-ms", "0") as started:
        answer = perfdoctor(
            "attach", started.pid, "--duration", "3", "--trace", "--json", tmp_path / "a.json",
            "--recording", tmp_path / "traced",
        )  # fmt: skip
        assert answer.status in (0, 1), answer.err
    assert answer.err == ""
    assert answer.told["overhead"]["trace_way"] == "gdb"
    assert answer.told["overhead"]["trace_s"] > 0
    assert "Then traced" in answer.out
    with closing(sqlite3.connect(tmp_path / "traced")) as db, db:
        assert db.execute("SELECT count(*) FROM Profile").fetchone() == (1,)
        db.execute("DELETE FROM Profile")
    with Recording.open(tmp_path / "traced") as recording:
        untraced = examine(recording)
    assert untraced.verdict.cause == answer.told["verdict"]["cause"]
    assert untraced.verdict.level == answer.told["verdict"]["level"]
    told = {row["cause"]: row["share"] for row in answer.told["breakdown"]}
    assert told == pytest.approx({share.cause: share.share for share in untraced.breakdown}, abs=0.001)


def test_without_the_option_the_job_is_not_entered(tmp_path: Path) -> None:
    with traced_job("plain") as started:
        before = state(started)
        answer = perfdoctor("attach", started.pid, "--duration", "1", "--json", tmp_path / "a.json")
        assert "trace_way" not in answer.told["overhead"]
        after = state(started)
        assert left_in(before, after) == {}
        assert after["threads"] == before["threads"]
