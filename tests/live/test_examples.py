"""The examples: their READMEs are well formed, and jobs start, train and tidy up, with the bottleneck and fixed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from perfdoctor.causes import CAUSES
from tests.processes.attaching import gone, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import jobs
import machine
import scoring

EXAMPLES = jobs.EXAMPLES
ALL = jobs.examples()
NO_GROUPS = machine.needs_root()


def left_overs(pid: int) -> set[str]:
    """Control groups and files of an example: its pid is in their names."""
    name = f"{machine.PREFIX}{pid}"
    places = [*machine.GROUPS.glob(f"*/{name}"), *Path("/var/tmp").glob(name), *Path("/var/tmp").glob(f"{name}-*")]
    return {str(path) for path in places}


# To import torch, and what its optimizers import on first use, takes longer than a few steps. A process that has done
# so forks for each run: each is still a process of its own, in which the script runs from its beginning to its end.
RUN_ONE = """
import os, runpy, signal, sys
import torch, torch._dynamo
for line in sys.stdin:
    script, state, folder = line.split()
    child = os.fork()
    if child == 0:
        for number, name in enumerate(("/dev/null", f"{folder}/out", f"{folder}/err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
        signal.alarm(240)
        sys.argv = [script, state, "--seconds", "0.5"]
        sys.path.insert(0, os.path.dirname(script))
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    print(child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def runner() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", RUN_ONE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        yield process


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
@pytest.mark.parametrize("state", ["bottleneck", "fixed"])
def test_example_trains_and_tidies_up(name: str, state: str, runner: "subprocess.Popen[str]", tmp_path: Path) -> None:
    (example,) = jobs.examples([name])
    if NO_GROUPS and example.needs_root:
        pytest.skip(NO_GROUPS)
    assert runner.stdin is not None
    assert runner.stdout is not None
    runner.stdin.write(f"{EXAMPLES / name / 'train.py'} {state} {tmp_path}\n")
    runner.stdin.flush()
    pid, status = map(int, runner.stdout.readline().split())
    assert status == 0, (tmp_path / "err").read_text()
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines[0] == "ready"
    assert float(lines[-1].removeprefix("throughput: ").removesuffix(" steps/s")) > 0
    assert until(lambda: not left_overs(pid))


GPU = [example for example in ALL if example.needs_gpu]


# As above, and with the bottleneck and fixed side by side.
RUN_ALL = """
import os, runpy, sys
import torch, torch._dynamo
for script in sys.argv[1:]:
    children = {}
    for state in ("bottleneck", "fixed"):
        child = os.fork()
        if child == 0:
            sys.argv = [script, state, "--seconds", "0"]
            sys.path.insert(0, os.path.dirname(script))
            runpy.run_path(script, run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
        children[state] = child
    ended = {state: os.waitpid(child, 0)[1] for state, child in children.items()}
    for state, status in ended.items():
        print(script, state, status, flush=True)
"""


def test_gpu_examples_have_no_slip_that_a_cpu_would_show(tmp_path: Path) -> None:
    """A step or two at a tiny size; what they do on a GPU is for a machine that has one."""
    scripts = [str(EXAMPLES / example.name / "train.py") for example in GPU]
    env = {**os.environ, "PERFDOCTOR_EXAMPLE_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN_ALL, *scripts]
    said, errors = tmp_path / "said", tmp_path / "errors"
    # In a session of their own, and into files: of one that hangs, all goes, and what had ended is told.
    with said.open("w") as out, errors.open("w") as err:
        running = subprocess.Popen(command, stdout=out, stderr=err, cwd="/", env=env, start_new_session=True)
        until(lambda: running.poll() is not None, seconds=240)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    wanted = [f"{script} {state} 0" for script in scripts for state in ("bottleneck", "fixed")]
    assert [line for line in said.read_text().splitlines() if "train.py" in line] == wanted, errors.read_text()
    # Ranks that write to one pipe may end up on one line.
    assert said.read_text().count("ready") == len(wanted)


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
    with jobs.running(example, "bottleneck", 60) as job:
        job.wait_until_ready()
        assert left_overs(job.pid)
        family = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
    assert not psutil.wait_procs(family, timeout=10)[1]
    assert until(lambda: not left_overs(job.pid))
    assert until(lambda: machine.PREFIX not in Path("/proc/swaps").read_text())


def spinners() -> list[psutil.Process]:
    return [p for p in psutil.process_iter() if machine._SPIN in _arguments(p)]


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def test_neighbours_go_when_the_job_is_killed() -> None:
    (example,) = jobs.examples(["noisy_neighbours"])
    with jobs.running(example, "bottleneck", 60) as job:
        job.wait_until_ready()
        assert until(spinners)
        spinning = spinners()
        job.process.kill()
        job.process.wait()
        assert until(lambda: all(gone(one.pid) for one in spinning))


def test_pace_counts_the_steps_of_a_running_job() -> None:
    (example,) = jobs.examples(["element_loops"])
    with jobs.running(example, "fixed", 30) as job:
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
    assert (result.bottleneck, result.cause, result.straggler, result.false_bottlenecks) == (1.0, 0.5, 1.0, 1)
    assert result.share_error == pytest.approx(0.1)
    assert not result.good
