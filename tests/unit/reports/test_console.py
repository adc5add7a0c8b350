import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.console import render
from tests.builders import diagnoses

COLORS = re.compile(r"\x1b\[[0-9;]*m")


def show(diagnosis: Diagnosis, *, width: int = 80, encoding: str = "utf-8") -> str:
    return render(diagnosis, width=width, color=False, encoding=encoding)


def section(text: str, heading: str) -> list[str]:
    """The lines below a heading, up to the next blank line."""
    _, below = text.split(f"\n{heading}\n")
    return below.split("\n\n")[0].splitlines()


@pytest.mark.parametrize(
    ("diagnosis", "line"),
    [
        (
            diagnoses.input_bound(),
            "CPU bottleneck: preparing the input on the CPU, 62% of the time, up to 2.3 times as fast if fixed",
        ),
        (
            diagnoses.straggler(),
            "I/O bottleneck: reading from storage, 45% of the time, up to 1.8 times as fast if fixed",
        ),
        (diagnoses.sound(), "No bottleneck found: 94% is the model's arithmetic on the CPU"),
        (diagnoses.undecided(), "No bottleneck named: there is not enough evidence"),
    ],
)
def test_the_first_line_is_the_verdict(diagnosis: Diagnosis, line: str) -> None:
    assert show(diagnosis).splitlines()[0] == line
    assert show(diagnosis, width=40).splitlines()[0] == line


def test_without_a_verdict_it_says_what_is_missing() -> None:
    assert "watch at least 5 s" in show(diagnoses.undecided())


def test_what_is_not_known_at_all_has_no_bar() -> None:
    assert "Where the time goes" not in show(diagnoses.undecided())
    assert "Where the time goes" in show(diagnoses.sound())


def test_bars_are_as_long_as_the_shares() -> None:
    lines = section(show(diagnoses.input_bound(), encoding="ascii"), "Where the time goes")
    bars = [(line.count("#"), int(share[1])) for line in lines if (share := re.search(r"(\d+)%", line))]
    assert len(bars) == 6
    width = 80 // 3
    for length, percent in bars:
        assert length == pytest.approx(percent / 100 * width, abs=1)


def test_it_says_everything() -> None:
    diagnosis = diagnoses.input_bound()
    text = " ".join(show(diagnosis, width=110).split())
    for finding in diagnosis.findings[:1]:
        expected = [finding.cause, finding.summary, finding.refuted_by]
        expected += [part for fix in finding.fixes for part in (fix.title, fix.why, *fix.change.split("\n"))]
        expected += [item.probe for item in finding.evidence]
        for part in expected:
            assert " ".join(part.split()) in text
    for missing in diagnosis.not_examined:
        assert f"{missing.probe}: {missing.reason} To enable: {missing.enable}" in text
    assert "CPU 3% of one core" in text
    assert "Late samples 2" in text


def test_what_costs_little_is_told_in_short() -> None:
    text = show(diagnoses.input_bound())
    *_, logs = diagnoses.input_bound().findings
    assert logs.summary in " ".join(text.split())
    assert "To change: flush rarely; log less." in text
    assert diagnoses.ADVICE[:40] not in text
    assert "--report FILE.html" in text


def test_ranks_and_their_straggler() -> None:
    text = " ".join(" ".join(section(show(diagnoses.straggler(), width=110), "Rank by rank")).split())
    first, second = text.split(" Rank 1 (pid 101, 0 workers) ")
    assert first.startswith("Rank 0 (pid 100, 1 worker) 51% the model's arithmetic on the CPU")
    assert second.startswith("straggler: 49% the model's arithmetic on the CPU, 46% reading from storage")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("make", [diagnoses.input_bound, diagnoses.straggler, diagnoses.undecided])
def test_prose_fits_the_width(make: type[Diagnosis], width: int) -> None:
    diagnosis = make()
    fixes = [fix.change for finding in diagnosis.findings for fix in finding.fixes]
    code = {line.strip() for change in fixes if change != diagnoses.ADVICE for line in change.split("\n")}
    _, *others = show(diagnosis, width=width).splitlines()
    assert not [line for line in others if len(line) > width and line.strip() not in code]


def test_code_is_never_wrapped() -> None:
    long = "        image.draft('RGB', (224, 224))  # before convert(): decodes at an eighth of the cost"
    assert long in show(diagnoses.input_bound(), width=40)


def test_color_adds_nothing_but_color() -> None:
    colored = render(diagnoses.input_bound(), width=80, color=True, encoding="utf-8")
    assert COLORS.search(colored)
    plain = "\n".join(line.rstrip() for line in COLORS.sub("", colored).splitlines())
    assert plain == show(diagnoses.input_bound()).rstrip("\n")


@pytest.mark.parametrize("color", [False, True])
def test_hostile_text_cannot_steer_the_terminal(color: bool) -> None:
    text = render(diagnoses.hostile(), width=100, color=color, encoding="utf-8")
    text.encode("utf-8")
    rest = COLORS.sub("", text).replace("\n", "")
    assert rest.isprintable()
    assert "[bold red]red[/]" in rest  # printed, not obeyed
    assert diagnoses.ATTACK in rest


def test_an_ascii_terminal_gets_ascii() -> None:
    text = show(diagnoses.hostile(), encoding="ascii")
    assert text.isascii()
    assert "####" in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_real_pipe_of_any_encoding_takes_it(encoding: str, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(
        "import runpy, sys\n"
        "from perfdoctor.reports.console import render\n"
        "made = runpy.run_path(sys.argv[1])['hostile']()\n"
        "sys.stdout.write(render(made, width=None, color=False))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), diagnoses.__file__],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"},
    )
    assert done.stdout.decode(encoding).startswith("CPU bottleneck: preparing the input on the CPU, 62%")


def test_steps_are_shown_with_their_parts_by_themselves() -> None:
    steps = {
        "count": 60, "median_s": 0.02, "mean_s": 0.02, "p95_s": 0.03, "collector_s": 0.0, "outside_s": 0.0,
        "phases": {
            "data": {"median_s": 0.012, "mean_s": 0.012, "share": 0.6},
            "forward": {"median_s": 0.001, "mean_s": 0.001, "share": 0.4},
        },
        "device": {"count": 9, "median_s": 0.02, "phases": {"forward": 0.008}},
        "serialised": {
            "count": 4, "sum_s": 0.03, "overlap": 1 / 3,
            "phases": {
                "data": {"median_s": 0.02, "exposed_s": 0.01},
                "forward": {"median_s": 0.01, "exposed_s": 0.0},
            },
        },
    }  # fmt: skip
    lines = section(show(replace(diagnoses.sound(), steps=steps), width=100), "Its steps")
    told = {line[2:22].strip(): line[22:].strip() for line in lines}
    assert told["Data"].endswith("12 ms a step, 60%; 20 ms by itself")
    assert told["Forward"].endswith("1 ms a step, 40%; 8 ms on the device; 10 ms by itself")
    assert told["Parts by themselves"].endswith("30 ms a step in total, over 4 steps; 33% of that overlaps")
