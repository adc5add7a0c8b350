"""The examples: their READMEs are well formed, and jobs start, train and tidy up, sick and cured."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from perfdoctor.causes import CAUSES

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import jobs
import machine
import scoring

EXAMPLES = jobs.EXAMPLES
ALL = jobs.examples()
NO_GROUPS = machine.needs_root()


def left_overs() -> set[str]:
    groups = [str(path) for path in machine.GROUPS.glob(f"*/{machine.PREFIX}*")]
    files = [str(path) for path in Path("/var/tmp").glob(f"{machine.PREFIX}*")]
    return {*groups, *files}


FOLDERS = sorted([*EXAMPLES.glob("*/train.py"), *EXAMPLES.glob("gpu/*/train.py")])


@pytest.mark.parametrize("folder", [path.parent for path in FOLDERS], ids=lambda path: path.name)
def test_readme_names_a_known_cause(folder: Path) -> None:
    (example,) = [e for e in ALL if e.name == folder.relative_to(EXAMPLES).as_posix()]
    assert example.expected in CAUSES
    assert CAUSES[example.expected].healthy == folder.name.startswith("sound_")
    assert "under_torchrun" in (folder / "train.py").read_text() or example.straggler is None


def test_there_are_sound_jobs_and_many_illnesses() -> None:
    assert sum(e.sound for e in ALL) >= 4
    assert len({e.expected for e in ALL if not e.sound}) >= 14


@pytest.mark.parametrize(
    "name",
    [
        "cold_reads",
        "cpu_quota",
        "noisy_neighbours",
        "slow_store",
        "straggler_preprocessing",
        "swapping",
        "worker_lock",
    ],
)
@pytest.mark.parametrize("state", ["sick", "cured"])
def test_example_trains_and_tidies_up(name: str, state: str) -> None:
    (example,) = jobs.examples([name])
    if NO_GROUPS and example.needs_root:
        pytest.skip(NO_GROUPS)
    before = left_overs()
    command = [sys.executable, str(EXAMPLES / name / "train.py"), state, "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "ready"
    assert float(lines[-1].removeprefix("throughput: ").removesuffix(" steps/s")) > 0
    assert left_overs() <= before


GPU = [example for example in ALL if example.needs_gpu]


# Forks for each run, since importing torch takes longer than a few tiny steps.
RUN_ALL = """
import os, runpy, sys
import torch
for script in sys.argv[1:]:
    children = {}
    for state in ("sick", "cured"):
        child = os.fork()
        if child == 0:
            sys.argv = [script, state, "--seconds", "0"]
            sys.path.insert(0, os.path.dirname(script))
            runpy.run_path(script, run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
        children[state] = child
    for state, child in children.items():
        print(script, state, os.waitpid(child, 0)[1], flush=True)
"""


def test_gpu_examples_have_no_slip_that_a_cpu_would_show() -> None:
    """A step or two at a tiny size; what they do on a GPU is for a machine that has one."""
    scripts = [str(EXAMPLES / example.name / "train.py") for example in GPU]
    env = {**os.environ, "PERFDOCTOR_EXAMPLE_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN_ALL, *scripts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd="/", env=env)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    wanted = [f"{script} {state} 0" for script in scripts for state in ("sick", "cured")]
    assert [line for line in lines if "train.py" in line] == wanted, done.stderr
    assert lines.count("ready") == len(wanted)


def test_gpu_examples_are_left_out_with_the_reason_where_there_is_no_gpu() -> None:
    reason = jobs.why_no_gpu()
    if reason is None:
        pytest.skip("this machine has an accelerator")
    assert "needs an accelerator" in reason
    assert jobs.left_out(GPU) == {example.name: reason for example in GPU}
    env = {name: value for name, value in os.environ.items() if name != "PERFDOCTOR_EXAMPLE_DEVICE"}
    command = [sys.executable, str(EXAMPLES / GPU[0].name / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 1
    assert "needs an accelerator" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0 or NO_GROUPS is not None, reason=NO_GROUPS or "needs root")
def test_terminated_job_leaves_nothing_behind() -> None:
    (example,) = jobs.examples(["swapping"])
    before = left_overs()
    with jobs.running(example, "sick", 60) as job:
        job.wait_until_ready()
        assert left_overs() - before
        family = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
    assert not any(member.is_running() for member in family)
    assert left_overs() <= before
    assert machine.PREFIX not in Path("/proc/swaps").read_text()


def spinners() -> list[psutil.Process]:
    return [p for p in psutil.process_iter() if machine._SPIN in _arguments(p)]


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def test_neighbours_go_when_the_job_is_killed() -> None:
    (example,) = jobs.examples(["noisy_neighbours"])
    with jobs.running(example, "sick", 60) as job:
        job.wait_until_ready()
        spinning = spinners()
        assert spinning
        job.process.kill()
        job.process.wait()
        _, alive = psutil.wait_procs(spinning, timeout=10)
    assert not alive


def test_pace_counts_the_steps_of_a_running_job() -> None:
    (example,) = jobs.examples(["element_loops"])
    with jobs.running(example, "cured", 30) as job:
        job.wait_until_ready()
        before = job.progress()[0]
        begin = time.monotonic()
        pace = job.pace(2.0)
        steps, elapsed = job.progress()[0] - before, time.monotonic() - begin
    assert pace == pytest.approx(steps / elapsed, rel=0.3)


def test_totals_count_a_wrong_verdict_on_a_sound_job() -> None:
    sound, ill = jobs.Example("a", jobs.HEALTHY, None), jobs.Example("b", "io.storage_read", 1)
    right = scoring.Result(ill, "attach", "io.storage_read", 1, true_share=0.6, said_share=0.5)
    wrong = scoring.Result(sound, "attach", "cpu.contention", None)
    result = scoring.totals([right, wrong])
    assert (result.bottleneck, result.cause, result.straggler, result.false_illnesses) == (1.0, 0.5, 1.0, 1)
    assert result.share_error == pytest.approx(0.1)
    assert not result.good
