"""The check command, as users run it."""

import argparse
import os
import subprocess
import sys

import psutil
import pytest

from perfdoctor.commands import check
from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes import Availability, all_probes
from perfdoctor.reports.language import language
from tests.builders.phrases import english_runs
from tests.processes.attaching import SILENT, WITHOUT_PTRACE, job, needs_root, perfdoctor, refused


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    return parser.parse_args(words)


def test_prints_one_line_per_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(arguments(str(os.getpid()))) == 0
    probes, steps, ways = capsys.readouterr().out.split("\n\n")
    lines = [line for line in probes.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in lines] == [probe.name for probe in all_probes()]
    assert steps.startswith("`attach --steps` counts its steps, where this works:\nsteps ")
    assert ways.startswith("`attach --trace` takes the first of these that works:\n")


def test_works_without_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    with job(*SILENT, "sleep") as silent:
        assert check.run(arguments()) == 0
    probes, jobs = capsys.readouterr().out.split("\n\n")
    assert "threads     works" in probes
    assert any(line.split()[0] == str(silent.pid) for line in jobs.splitlines())


def test_a_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(PerfDoctorError, match="There is no process"):
        check.run(arguments(str(1 << 40)))


def test_it_is_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    with language("zh"):
        assert check.run(arguments(str(os.getpid()))) == 0
    text = capsys.readouterr().out
    assert text.count("可用") >= 8
    assert english_runs(text) == []


def test_fails_where_attach_would(capsys: pytest.CaptureFixture[str]) -> None:
    with job("sleep", "60", ready="") as sleeper, pytest.raises(PerfDoctorError, match="has PyTorch loaded"):
        check.run(arguments(str(sleeper.pid)))
    assert "is not a Python process" in capsys.readouterr().out


@needs_root
def test_what_may_not_be_attached_to_is_refused_in_the_same_words() -> None:
    with job(*SILENT, "sleep", "plain") as ours:
        for command in ("attach", "check"):
            answer = perfdoctor(command, ours.pid, prefix=WITHOUT_PTRACE)
            refused(answer, "capabilities that we lack", "SYS_PTRACE")


def test_the_processes_of_a_launcher_that_may_train_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = "import torch, time; print('ready', flush=True); time.sleep(60)"
    with job("bash", "-c", f'{sys.executable} -c "{trainer}" & sleep 60 & echo started $!; wait', ready="") as launcher:
        assert launcher.process.stdout is not None
        assert {launcher.process.stdout.readline().split()[0] for _ in range(2)} == {"started", "ready"}
        assert check.run(arguments(str(launcher.pid))) == 0
        first, second = (child.pid for child in psutil.Process(launcher.pid).children())
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("Of 3 processes 1 has PyTorch: ")
    assert line.endswith((f"({first}).", f"({second})."))


def test_says_each_remedy_once() -> None:
    checks = [
        Availability("threads", True),
        Availability("stacks", False, "No rights.", "sudo it"),
        Availability("io", True, "Only devices.", "sudo it"),
    ]
    assert check.plain(checks).splitlines() == [
        "threads     works",
        "stacks      no      No rights.",
        "                    to enable: sudo it",
        "io          in part Only devices.",
    ]


def test_draws_a_table_on_a_terminal_and_takes_no_markup_from_reasons() -> None:
    code = (
        "from perfdoctor.commands import check\nfrom perfdoctor.probes import Availability\n"
        "check._print_table([Availability('stacks', False, 'reads [bold]this[/]', 'do it'), "
        "Availability('io', True, 'x', 'do it')])"
    )
    env = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
    assert "reads [bold]this[/]" in out
    assert "as above" in out


def test_the_first_line_of_the_module_is_its_help() -> None:
    assert check.__doc__ is not None
    assert check.__doc__.splitlines()[0].endswith(".")
