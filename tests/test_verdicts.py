"""The whole way on real jobs: an example with a planted illness is watched, and the verdict names it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.causes import CAUSES
from tests.attaching import PERFDOCTOR

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NEEDS_ROOT = ("cold_reads", "cpu_quota", "frequent_checkpoints")
# One of each mechanism; examples/scorecard.py runs all of them and measures the true gain as well.
WATCHED = (
    "slow_preprocessing_workers",
    "tiny_operators",
    "busy_thread",
    "collector_every_step",
    "straggler_preprocessing",
    "worker_lock",
    "sound_training",
    *NEEDS_ROOT,
)


def _expected(name: str) -> dict[str, str]:
    lines = (EXAMPLES / name / "README.md").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line.startswith(("expected: ", "straggler: ")))


@pytest.mark.parametrize("name", WATCHED)
def test_verdict_names_the_planted_illness(name: str, tmp_path: Path) -> None:
    if name in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("only root can throttle disks and processors")
    command = [sys.executable, str(EXAMPLES / name / "train.py"), "sick", "--seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline().startswith("ready")
            said = tmp_path / "said.json"
            attach = [*PERFDOCTOR, "attach", str(job.pid), "--duration", "8", "--json", str(said)]
            answer = subprocess.run(attach, capture_output=True, text=True, check=False, cwd=tmp_path)
            assert answer.returncode == 0, answer.stderr
        finally:
            os.killpg(job.pid, 15)
            try:
                job.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, 9)
    diagnosis = json.loads(said.read_text())
    expected = _expected(name)
    assert diagnosis["verdict"]["cause"] == expected["expected"], diagnosis["breakdown"]
    assert diagnosis["verdict"]["bottleneck"] == CAUSES[expected["expected"]].bottleneck
    assert diagnosis["verdict"]["straggler_rank"] == (int(expected["straggler"]) if "straggler" in expected else None)
    assert sum(part["share"] for part in diagnosis["breakdown"]) == pytest.approx(1, abs=0.001)
