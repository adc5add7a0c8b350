"""The check command, as users run it."""

import argparse
import os
import subprocess
import sys

import pytest

from perfdoctor.commands import check
from perfdoctor.errors import PerfDoctorError
from perfdoctor.preflight import PROBES, Check


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    return parser.parse_args(words)


def test_prints_one_line_per_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(arguments(str(os.getpid()))) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in lines] == list(PROBES)


def test_works_without_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(arguments()) == 0
    assert "threads     works" in capsys.readouterr().out


def test_a_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(PerfDoctorError, match="There is no process"):
        check.run(arguments(str(1 << 40)))


def test_says_each_remedy_once() -> None:
    checks = [
        Check("threads", True),
        Check("stacks", False, "No rights.", "sudo it"),
        Check("io", True, "Only devices.", "sudo it"),
    ]
    assert check.plain(checks).splitlines() == [
        "threads     works",
        "stacks      no      No rights.",
        "                    to enable: sudo it",
        "io          in part Only devices.",
    ]


def test_draws_a_table_on_a_terminal_and_takes_no_markup_from_reasons() -> None:
    code = (
        "from perfdoctor.commands import check\nfrom perfdoctor.preflight import Check\n"
        "check._print_table([Check('stacks', False, 'reads [bold]this[/]', 'do it'), "
        "Check('io', True, 'x', 'do it')])"
    )
    env = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    ).stdout
    assert "reads [bold]this[/]" in out
    assert "as above" in out


def test_the_first_line_of_the_module_is_its_help() -> None:
    assert check.__doc__ is not None
    assert check.__doc__.splitlines()[0].endswith(".")
