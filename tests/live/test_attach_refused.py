"""What cannot be diagnosed: one sentence says why, another what to do, and the exit status tells."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from perfdoctor.capture.target import require_linux
from perfdoctor.errors import PerfDoctorError
from tests.processes import filtered
from tests.processes.attaching import (
    AS_NOBODY,
    ENVIRONMENT,
    SILENT,
    TARGETS,
    TRAINING,
    WITHOUT_PTRACE,
    job,
    needs_root,
    perfdoctor,
    refused,
)


def test_no_such_process() -> None:
    refused(perfdoctor("attach", 1 << 22), "There is no process", "perfdoctor ps")


def test_a_zombie() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        stat = Path(f"/proc/{child.pid}/stat")
        while ") Z" not in stat.read_text():
            time.sleep(0.02)
        refused(perfdoctor("attach", child.pid), "zombie")


def test_a_thread_of_the_kernel() -> None:
    second = Path("/proc/2/comm")
    if not second.exists() or second.read_text() != "kthreadd\n":  # as in a container
        pytest.skip("threads of the kernel cannot be seen here")
    refused(perfdoctor("attach", 2), "kernel")


@needs_root
def test_another_users_process() -> None:
    with job(*SILENT, "sleep", "plain") as theirs:
        refused(perfdoctor("attach", theirs.pid, prefix=AS_NOBODY), "belongs to root", "sudo")


@needs_root
def test_no_right_to_trace() -> None:
    with job(*SILENT, "sleep", "plain") as ours:
        refused(perfdoctor("attach", ours.pid, prefix=WITHOUT_PTRACE), "capabilities that we lack", "SYS_PTRACE")


@needs_root
def test_a_process_of_ours_that_protects_itself() -> None:
    code = (
        "import ctypes, os, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0);"
        "print('ready', os.getpid(), flush=True); time.sleep(60)"
    )
    with job(*AS_NOBODY, sys.executable, "-c", code) as ours:
        refused(perfdoctor("attach", ours.pid, prefix=AS_NOBODY), "not dumpable")


@needs_root
def test_stacks_that_cannot_be_read_are_missed_by_name(tmp_path: Path) -> None:
    """As with kernel.yama.ptrace_scope 1, which lets us read a process of ours, but not trace it."""
    with job(*TRAINING, "--item-ms", "1") as ours:
        answer = perfdoctor(
            "attach", ours.pid, "--duration", "3", "--json", tmp_path / "a.json",
            prefix=(sys.executable, str(TARGETS / "job_untraced.py"), str(ours.pid)),
        )  # fmt: skip
    # On a busy machine threads are sampled more rarely as well, which is reported in a row of its own.
    told = [one for one in answer.told["not_examined"] if "instead of" not in one["reason"]]
    missed = {entry["probe"]: entry for entry in told}
    assert "system calls" in missed["threads"]["reason"]
    assert "py-spy" in missed["stacks"]["reason"]
    assert missed["threads"]["enable"]
    if answer.status:
        refused(answer, "No bottleneck can be named", f"perfdoctor check {ours.pid}")


def test_not_a_python_process() -> None:
    with job("sleep", "60", ready="") as sleeper:
        refused(perfdoctor("attach", sleeper.pid), "PyTorch", f"sleep ({sleeper.pid})", "Name the process that trains")


def test_python_without_torch() -> None:
    with job(*SILENT, "spin", "plain") as spinning:
        refused(perfdoctor("attach", spinning.pid, "--duration", "1"), "PyTorch")


@pytest.mark.parametrize(
    ("mode", "waits"),
    [("sleep", " sleeps"), ("stdin", "on a pipe"), ("lock", "a lock"), ("socket", "on a connection")],
)
def test_a_job_that_does_not_train_is_told_where_it_waits(mode: str, waits: str, tmp_path: Path) -> None:
    with job(*SILENT, mode) as idle:
        answer = perfdoctor("attach", idle.pid, "--duration", "2.5", "--json", tmp_path / "a.json")
    refused(answer, "did not train", waits, "job_silent.py:", f"py-spy dump --pid {idle.pid}", "Attach again")
    assert answer.told["verdict"]["bottleneck"] is None


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_told_what_is_supported(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(PerfDoctorError, match=f"Linux only; this is {platform}") as caught:
        require_linux()
    assert "Linux machine" in caught.value.hint


@pytest.mark.parametrize(
    "arguments",
    [
        ("attach", "train.py"),
        ("attach", "1", "--duration", "0"),
        ("attach", "1", "--duration", "-3"),
        ("attach", "1", "--duration", "nan"),
        ("attach", "1", "--duration", "long"),
        ("attach", "1", "--duration", "86400"),
        ("report",),
        ("dance",),
        (),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    answer = perfdoctor(*arguments)
    assert answer.status == 2
    assert "usage: perfdoctor" in answer.err
    assert "_seconds" not in answer.err
    assert "invalid int" not in answer.err


def test_a_script_is_not_the_number_of_a_process() -> None:
    answer = perfdoctor("check", "train.py")
    assert answer.status == 2
    assert "argument PID: 'train.py' is not the number of a process. `perfdoctor ps" in answer.err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("attach", "1", "--durtion", "3"), "did you mean --duration?"),
        (("attach", "1", "--recordings=a"), "did you mean --recording?"),
        (("report", "a", "--jsn", "b"), "did you mean --json?"),
        (("attach", "1", "--html", "a.html"), "did you mean --report?"),
        (("attach", "1", "--seconds=3", "-o", "a"), "did you mean --duration and --report?"),
        (("check", "1", "2"), "unrecognized arguments: 2\n"),
    ],
)
def test_an_unknown_option_is_answered_with_those_of_the_command(arguments: tuple[str, ...], meant: str) -> None:
    answer = perfdoctor(*arguments)
    assert answer.status == 2
    assert f"usage: perfdoctor {arguments[0]}" in answer.err
    assert meant in answer.err


def test_without_py_spy_the_stacks_are_missed_by_name(tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python").symlink_to(sys.executable)
    (bare.parent / "pyvenv.cfg").write_text(Path(sys.prefix, "pyvenv.cfg").read_text())
    (bare.parent / "lib").symlink_to(Path(sys.prefix, "lib"))
    environment = {**ENVIRONMENT, "PATH": "/usr/bin:/bin"}
    told = tmp_path / "a.json"
    with job(*TRAINING, "--wait-ms", "0.5") as training:
        command = [bare / "python", "-m", "perfdoctor", "attach", str(training.pid), "--duration", "2", "--json", told]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    (missed,) = (one for one in json.loads(told.read_text())["not_examined"] if one["probe"] == "stacks")
    assert missed["reason"].startswith("py-spy is not installed. Without stacks")
    assert missed["enable"].startswith("pip install py-spy")
    # All that the job does is wait, and nobody knows what for.
    assert done.returncode == 1
    assert f"perfdoctor check {training.pid}" in done.stderr


def test_a_py_spy_that_fails_is_quoted(tmp_path: Path) -> None:
    """A stand-in for a Python that py-spy does not know; it says what the real one says then."""
    said = "Error: Failed to find python version from target process"
    stand_in = tmp_path / "py-spy"
    stand_in.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    code = (
        "import sys\nfrom perfdoctor.probes import stacks\nfrom perfdoctor.__main__ import main\n"
        f"stacks.find_py_spy = lambda: {str(stand_in)!r}\n"
        "stacks.cpython_stacks.knows = lambda version: False\nsys.exit(main(sys.argv[1:]))"
    )
    told = tmp_path / "a.json"
    with job(*TRAINING, "--item-ms", "1") as training:
        command = [sys.executable, "-c", code, "attach", str(training.pid), "--duration", "2", "--json", str(told)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert told.read_text().count(said) == 1


def test_a_report_for_a_folder_that_does_not_exist_is_refused_at_once(tmp_path: Path) -> None:
    begun = time.monotonic()
    with job(*SILENT, "sleep", "plain") as young:
        answer = perfdoctor("attach", young.pid, "--duration", "60", "--report", tmp_path / "no" / "a.html")
    refused(answer, "There is no folder", "mkdir -p")
    assert time.monotonic() - begun < 30


def test_nothing_overwrites_a_file_of_the_users(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("data")
    with job(*SILENT, "sleep", "plain") as young:
        refused(perfdoctor("attach", young.pid, "--recording", precious), "is no recording", "--force")
        refused(perfdoctor("attach", young.pid, "--json", precious), "is no report of perfdoctor's", "--force")
        refused(perfdoctor("attach", young.pid, "--recording", "/dev/null"), "no file that can be recorded into")
        refused(perfdoctor("attach", young.pid, "--recording", tmp_path), "is a folder")
        twice = tmp_path / "new"
        answer = perfdoctor("attach", young.pid, "--recording", twice, "--json", twice)
        refused(answer, "is named for two things", "Name a file of its own for each")
    assert precious.read_text() == "data"


@pytest.mark.alone
@pytest.mark.skipif(not filtered.KNOWN, reason="numbers of system calls are known for two machines only")
@pytest.mark.parametrize(("size", "cause"), [(8, "cpu.python_overhead"), (4_000_000, "cpu.model_compute")])
def test_without_the_kernels_profiler_calls_are_told_from_arithmetic(tmp_path: Path, size: int, cause: str) -> None:
    """Under a filter as a container's default one, which lets through all but performance events."""
    code = (
        "import os, torch; torch.set_num_threads(1)\n"
        f"weights = torch.randn({size}, requires_grad=True); optimizer = torch.optim.SGD([weights], lr=1e-9)\n"
        "print('ready', os.getpid(), flush=True)\n"
        "while True:\n    optimizer.zero_grad()\n    (weights.tanh().exp().sum()).backward()\n    optimizer.step()\n"
    )
    with job(sys.executable, "-c", code) as ours:
        answer = perfdoctor(
            "attach", ours.pid, "--duration", "5", "--json", tmp_path / "a.json",
            prefix=filtered.without(("perf_event_open",), ()),
        )  # fmt: skip
        assert psutil.Process(ours.pid).status() == psutil.STATUS_RUNNING
    (code_missed,) = [one for one in answer.told["not_examined"] if one["probe"] == "code"]
    assert "stopped for a moment" in code_missed["reason"]
    shares = {one["cause"]: one["share"] for one in answer.told["findings"]}
    # Of both together, since other work on the machine takes a part as well.
    assert shares[cause] > 0.7 * (shares.get("cpu.python_overhead", 0.0) + shares.get("cpu.model_compute", 0.0))
