"""What a session with a GPU left behind is replayed without one, and the script that keeps it keeps it rightly."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.analysis.from_traces import diagnose_traces
from perfdoctor.attribution.gpu_use import GpuReader
from perfdoctor.causes import CAUSES
from perfdoctor.metrics.gpu import job_gpus
from perfdoctor.recording.schema import Fact, Reading, Sample
from perfdoctor.timeline.readings import Readings
from perfdoctor.traces.reader import read_trace
from tests.builders import jobs
from tests.builders.traces import ELEMENTWISE, GEMM, MadeTrace
from tests.files import ROOT, real

sys.path.insert(0, str(ROOT / "examples"))
sys.path.insert(0, str(ROOT / "examples" / "gpu"))
import comparing
import keeping
import page

SESSION = ROOT / "examples" / "gpu" / "session.py"
FIXTURES = sorted(path.parent for path in (ROOT / keeping.FIXTURES).glob("*/result.json"))
# Verdicts that are known to be wrong, with the reason; one that became right is told too.
KNOWN_MISSES: dict[tuple[str, str], str] = {}
# What a busy GPU's counters can tell; other causes lie in when it is idle.
OF_COUNTERS = {"gpu.compute", "gpu.memory_bandwidth", "gpu.low_occupancy", "gpu.no_tensor_cores", "gpu.contention"}

replayed = pytest.mark.parametrize(
    "folder",
    FIXTURES or [pytest.param(None, marks=pytest.mark.skip("no fixture of a session with a GPU here"), id="none")],
    ids=lambda folder: folder.name,
)


def told_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def traced_cause(folder: Path) -> str | None:
    return diagnose_traces(read_trace(path) for path in sorted(folder.glob("rank*.json.gz"))).verdict.cause


def counted(folder: Path) -> Readings:
    """The fixture's readings, by way of a recording."""
    kept = json.loads((folder / "readings.json").read_text())
    facts = [Fact(jobs.START, "gpu", *fact) for fact in kept["facts"]]
    readings = [Reading(jobs.at(seconds), "gpu", *rest) for seconds, *rest in kept["readings"]]
    with jobs.recorded([*facts, *readings]) as recording:
        return Readings(recording)


def busy_with(readings: Readings) -> str:
    """What takes most of the busy time."""
    parts = GpuReader(readings, [job_gpus(readings)]).read(job_gpus(readings)).parts
    return max(parts, key=lambda cause: parts[cause])


def right_or_known(cause: str | None, told: dict[str, Any], way: str) -> None:
    reason = KNOWN_MISSES.get((told["example"], way))
    assert (cause == told["expected"]) == (reason is None), (cause, told["expected"], reason)


@replayed
def test_the_kept_trace_names_what_was_planted(folder: Path) -> None:
    told = told_of(folder)
    assert not told["dry"], "a dry run is no result"
    if not list(folder.glob("rank*.json.gz")):
        pytest.skip(f"the trace of {folder.name} was too large to keep")
    right_or_known(traced_cause(folder), told, "trace")


@replayed
def test_the_kept_readings_say_what_they_said(folder: Path) -> None:
    told, readings = told_of(folder), counted(folder)
    for row in told["compared"]:
        if "perfdoctor" in row:
            assert readings.mean(job_gpus(readings)[0], row["reading"]) == pytest.approx(row["perfdoctor"], rel=1e-6)
    if told["expected"] in OF_COUNTERS:
        right_or_known(busy_with(readings), told, "readings")


def a_trace() -> MadeTrace:
    """Three steps of memory traffic; the file names the host, and the events more than perfdoctor reads."""
    trace = MadeTrace(document={"host_name": "secret-host", "trace_id": "1", "traceName": "/home/someone/trace.json"})
    trace.gpu()
    for number in range(3):
        start = 1000.0 * (number + 1)
        trace.step(number, start, start + 1000)
        trace.launch(GEMM, start + 5, start + 20, start + 120)
        trace.launch(ELEMENTWISE, start + 10, start + 120, start + 980)
    trace.span("cpu_op", "aten::add", 1000, 1010, args={"Input Dims": [[1, 2]], "Call stack": "/home/someone/train.py"})
    trace.events.append({"ph": "s", "id": 1, "pid": 100, "tid": 100, "ts": 1000.0, "cat": "ac2g", "name": "ac2g"})
    return trace


def test_a_trimmed_trace_says_the_same_and_names_nobody(tmp_path: Path) -> None:
    whole = a_trace().write(tmp_path / "whole.json.gz")
    trimmed = keeping.trim(whole, tmp_path / "trimmed.json.gz")
    assert trimmed is not None
    one, two = (diagnose_traces([read_trace(path)]) for path in (whole, trimmed))
    assert one.verdict.cause == "gpu.memory_bandwidth"
    assert one.verdict == two.verdict
    assert one.breakdown == two.breakdown
    text = gzip.decompress(trimmed.read_bytes()).decode()
    assert "secret-host" not in text
    assert "someone" not in text


@pytest.mark.parametrize("name", ["bert-small-h100", "moe-expert-parallel-b200-before", "resnet18-mi300x-no-pool"])
def test_a_trimmed_real_trace_says_the_same(name: str, tmp_path: Path) -> None:
    trimmed = keeping.trim(real(name), tmp_path / "trimmed.json.gz")
    assert trimmed is not None
    one, two = (diagnose_traces([read_trace(path)]) for path in (real(name), trimmed))
    assert one.verdict == two.verdict
    assert one.breakdown == two.breakdown


def work_folder(folder: Path) -> Path:
    """What the tools leave behind of one example: readings of a GPU, rows of nvidia-smi, torch's counters, a trace."""
    folder.mkdir()
    levels = {"busy_fraction": 1.0, "sm_active_fraction": 0.9, "tensor_active_fraction": 0.05, "power_watts": 400.0}
    levels |= {"dram_bandwidth_fraction": 0.85, "memory_total_bytes": 80.0 * 2**30, "job_processes": 1.0}
    samples: list[Sample] = [
        Fact(jobs.START, "gpu", "gpu:0", "name", "A GPU"),
        Fact(jobs.START, "gpu", "gpu:0", "uuid", "GPU-1234"),
        *jobs.readings("host", "idle", *[1.0] * 4, every_s=0.5, probe="cpu"),
    ]
    for name, value in levels.items():
        samples += jobs.readings("gpu:0", name, *[value] * 4, every_s=0.5, probe="gpu")
    jobs.write(folder / comparing.RECORDING, samples)
    asked = [pair.theirs for pair in comparing._SMI_PAIRS]
    said = {"utilization.gpu": "99", "memory.total": "81920", "power.draw": "300.0"}
    line = ", ".join(["0", *(said.get(name, "[N/A]") for name in asked)])
    (folder / comparing.SMI).write_text(f"{line}\n{line}\n1, 2, 3\nnvidia-smi was terminated\n")
    (folder / "torch0.json").write_text(json.dumps({"power_draw": 399_000.0, "utilization unavailable": "no pynvml"}))
    a_trace().write(folder / "rank0.json.gz")
    return folder


def test_what_is_kept_can_be_replayed(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work")
    told = {"example": "made", "expected": "gpu.memory_bandwidth", "compared": comparing.compare(work)}
    folder = keeping.keep(told, work, tmp_path)
    assert traced_cause(folder) == told_of(folder)["expected"] == told_of(folder)["analyze_kept"]["cause"]
    readings = counted(folder)
    assert readings.mean("gpu:0", "power_watts") == 400
    assert busy_with(readings) == "gpu.memory_bandwidth"
    assert readings.subjects("host") == []
    assert "GPU-1234" not in (folder / "readings.json").read_text()
    assert len(json.loads((folder / "nvidia-smi.json").read_text())) == 2


def test_readings_are_compared_only_where_both_sides_spoke(tmp_path: Path) -> None:
    rows = {(row["source"], row["reading"]): row for row in comparing.compare(work_folder(tmp_path / "work"))}
    assert rows["nvidia-smi", "busy_fraction"]["agrees"]
    assert rows["nvidia-smi", "memory_total_bytes"]["agrees"]
    assert not rows["nvidia-smi", "power_watts"]["agrees"]
    assert rows["torch", "power_watts"]["agrees"]
    assert rows["nvidia-smi", "temperature_celsius"]["reason"] == "perfdoctor did not say"
    assert rows["torch", "busy_fraction"]["reason"] == "torch did not say"
    assert comparing.compare(tmp_path) == [{"reason": "perfdoctor's probe read no GPU here"}]


def a_result(way: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
    return {
        "example": "full_precision", "expected": "gpu.no_tensor_cores", "true_share": 0.7, "notes": [], "compared": [],
        "device": "A GPU", "dry": dry, "attach": way, "analyze": way, "inside": {"note": "no diagnosis came"},
    }  # fmt: skip


@pytest.mark.parametrize(("cause", "count"), [("gpu.no_tensor_cores", 1), ("gpu.compute", 0), (None, 0)])
def test_the_page_counts_right_verdicts_and_shows_wrong_ones(cause: str | None, count: int) -> None:
    bottleneck = None if cause is None else CAUSES[cause].bottleneck
    told = a_result({"cause": cause, "bottleneck": bottleneck, "share": 0.5, "expected_share": 0.5})
    text = page.render([told])
    assert f"attach: bottleneck right in {int(bottleneck == 'gpu')}, cause in {count} of 1 jobs." in text
    assert (f"**{cause or 'no verdict'}**" in text) == (not count)
    assert "| failed |" in text
    assert "full_precision: inside: no diagnosis came" in text
    assert "dry run" not in text
    assert "dry run" in page.render([a_result({}, dry=True)])


def test_a_dry_run_is_never_written_where_results_lie() -> None:
    command = [sys.executable, str(SESSION), "--device", "cpu", "--into", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a dry run is no result" in done.stderr


def test_the_session_says_why_it_does_not_start() -> None:
    env = {name: value for name, value in os.environ.items() if name != "PERFDOCTOR_EXAMPLE_DEVICE"}
    env["CUDA_VISIBLE_DEVICES"] = env["HIP_VISIBLE_DEVICES"] = ""
    done = subprocess.run([sys.executable, str(SESSION)], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 1
    assert "needs an accelerator" in done.stderr
