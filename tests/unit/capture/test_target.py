"""Which processes of a job have PyTorch loaded, before it is watched."""

import os
import subprocess
import sys

import pytest

from perfdoctor.capture import target
from perfdoctor.capture.target import family_of, require_torch
from perfdoctor.errors import PerfDoctorError
from tests.processes.attaching import job


def test_a_shell_without_pytorch_is_refused_with_its_processes() -> None:
    # By the time of the second sleep's end, the first one is no copy of the shell any more.
    with job("bash", "-c", "sleep 60 & other=$!; sleep 0.5; echo ready $other; wait") as shell:
        sleeper = shell.lines[0].split()[1]
        with pytest.raises(PerfDoctorError) as raised:
            require_torch(shell.pid)
    assert str(raised.value) == f"No process of this job has PyTorch loaded: bash ({shell.pid}), sleep ({sleeper})."
    assert "Name the process that trains" in raised.value.hint


def test_a_young_python_may_load_it_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "print('ready 0', flush=True); import time; time.sleep(60)"
    with job(sys.executable, "-S", "-c", code) as young:
        require_torch(young.pid)
        monkeypatch.setattr(target, "YOUNG_S", 0.0)
        with pytest.raises(PerfDoctorError, match="has PyTorch loaded: python"):
            require_torch(young.pid)


def test_many_processes_are_not_all_named() -> None:
    with (
        job("bash", "-c", "for i in 1 2 3 4 5 6; do sleep 60 & done; echo ready 0; wait") as shell,
        pytest.raises(PerfDoctorError, match="and 3 more") as raised,
    ):
        require_torch(shell.pid)
    assert str(raised.value).count("(") == 4


def test_perfdoctor_is_no_part_of_the_job() -> None:
    assert os.getpid() not in [one.pid for one in family_of(os.getppid())]


def test_a_process_that_has_gone_has_no_family() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert family_of(gone.pid) == []
