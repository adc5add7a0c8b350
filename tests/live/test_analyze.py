"""``perfdoctor analyze`` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.__main__ import main
from tests.builders.jobs import write
from tests.builders.traces import ELEMENTWISE, GEMM, MadeTrace


def launch_bound(rank: int | None = None) -> MadeTrace:
    made = MadeTrace()
    made.gpu()
    if rank is not None:
        made.document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    # Traces of ranks that are equal in all would be copies of one.
    longer = 0.1 * (rank or 0)
    for number in range(200):
        made.operator("aten::add", number * 50.0, number * 50.0 + 20.0)
        made.launch(ELEMENTWISE, number * 50.0 + 10.0, number * 50.0 + 16.0, number * 50.0 + 21.0 + longer)
    return made


def test_a_trace_gets_verdict_findings_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = launch_bound().write(tmp_path / "trace.json.gz")
    report, told = tmp_path / "out.html", tmp_path / "out.json"
    assert main(["analyze", str(trace), "--report", str(report), "--json", str(told)]) == 0
    assert "CPU bottleneck: launching small GPU kernels" in capsys.readouterr().out
    assert "launching small GPU kernels" in report.read_text()
    diagnosis = json.loads(told.read_text())
    assert diagnosis["verdict"]["cause"] == "cpu.kernel_launch"
    assert diagnosis["verdict"]["level"] == "traced"
    assert diagnosis["verdict"]["confidence"] == 0.8  # ten milliseconds, in which no step is marked
    assert diagnosis["ranks"][0]["workers"] is None
    [found] = [one for one in diagnosis["findings"] if one["cause"] == "cpu.kernel_launch"]
    evidence = {one["name"]: one["value"] for one in found["evidence"]}
    assert evidence["median time of a kernel"] == 5.0
    assert evidence["kernels and copies started on a GPU"] == pytest.approx(20_000, rel=0.01)


@pytest.mark.parametrize(("steps", "confidence"), [(2, 3 / 4), (8, 9 / 10), (100, 0.98)])
def test_more_steps_in_a_trace_make_surer(steps: int, confidence: float, tmp_path: Path) -> None:
    made = launch_bound()
    for number in range(steps):
        made.step(number, number * 10_000 / steps, (number + 1) * 10_000 / steps)
    path = made.write(tmp_path / "trace.json")
    assert main(["analyze", str(path), "--json", str(tmp_path / "out.json")]) == 0
    verdict = json.loads((tmp_path / "out.json").read_text())["verdict"]
    assert verdict["confidence"] == pytest.approx(confidence)


def test_a_folder_is_a_job_of_several_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (1, 0):
        launch_bound(rank).write(tmp_path / f"z{1 - rank}.pt.trace.json")
    assert main(["analyze", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.index("Rank 0 (z1.pt.trace.json)") < printed.index("Rank 1 (z0.pt.trace.json)")


def test_what_is_missing_is_told_in_two_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeTrace()
    made.span("npu_runtime", "launch", 0.0, 10_000.0)
    made.operator("aten::mm", 0.0, 10_000.0)
    assert main(["analyze", str(made.write(tmp_path / "npu.json"))]) == 1
    assert "does not know (npu_runtime)" in capsys.readouterr().err.splitlines()[0]


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.json"
    path.write_text("{}")
    assert main(["analyze", str(path)]) == 1
    assert "is not a profiler trace" in capsys.readouterr().err


def test_of_one_recording_it_says_what_report_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "job.perfdoctor")
    told = []
    for command in ("report", "analyze"):
        assert main([command, str(path)]) == 1
        told.append(capsys.readouterr())
    assert all("The watching ended before anything could be seen." in one.err for one in told)
    assert told[0].out == told[1].out


def test_damage_is_told_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = launch_bound()
    made.launch(GEMM, 20_000.0, 20_006.0, 20_010.0)
    path = tmp_path / "cut.json"
    path.write_text(made.text()[:-100])
    assert main(["analyze", str(path)]) == 0
    assert "could not be decoded" in " ".join(capsys.readouterr().out.split())


def without_pandas(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command where pandas is not installed."""
    script = (
        "import sys; sys.modules['pandas'] = None\nfrom perfdoctor.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, "analyze", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_traces_need_no_pandas(tmp_path: Path) -> None:
    done = without_pandas(str(launch_bound().write(tmp_path / "trace.json")))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_without_pandas_tells_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "operations.csv").write_text("dp_rank,stage\n")
    done = without_pandas(str(tmp_path / "operations.csv"))
    assert done.returncode == 1
    assert "operations.csv needs pandas to be read." in done.stderr
    assert "pip install 'perfdoctor[tables]'" in done.stderr
