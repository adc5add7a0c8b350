"""Records jobs for the corpus: measures what the fix gains, watches the job with its bottleneck, adds the recording.

    python tests/recordings/record.py [--only NAME ...] [--pace]

A job stands in ``jobs/NAME.py``; its docstring says in one sentence what it does, then its true ``cause``, the
``straggler``, the ``way`` to watch it if that is from inside, and what it ``needs``. The true share is 1 - pace with
the bottleneck / pace fixed. A recording that other programs on the machine disturbed is thrown away.
"""

import argparse
import ast
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.append(str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
import jobs
import ways
from jobs import Job

from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording
from tests.recordings import corpus

JOBS = corpus.FOLDER / "jobs"
WARM_UP_S, PATIENCE_S = 2.0, 90.0
# Cores that others may keep busy while a job is watched.
QUIET = 0.15
SOUND = ("cpu.model_compute", "gpu.compute")


class Disturbed(Exception):
    """Other programs kept the machine busy, so what was measured is worth nothing."""


def described(name: str) -> dict[str, str]:
    """What a job's docstring says: ``about``, ``cause``, and what else there is."""
    text = ast.get_docstring(ast.parse((JOBS / f"{name}.py").read_text())) or ""
    about, _, rest = text.partition("\n\n")
    told = dict(line.split(": ", 1) for line in rest.splitlines() if ": " in line)
    return {"about": about.replace("\n", " "), **told}


def running(name: str, state: str, **variables: str) -> contextlib.AbstractContextManager[Job]:
    """A job in a folder of its own; it is ended with this context."""
    return jobs.started(JOBS / f"{name}.py", *([] if state == "bottleneck" else [state]), variables=variables)


def pace(name: str, state: str, seconds: float) -> float:
    """Steps per second of a job that nobody watches."""
    with running(name, state, PERFDOCTOR_DISABLE="1") as job:
        job.wait_until_ready()
        time.sleep(WARM_UP_S)
        begin, before = time.monotonic(), _used_by_others(job)
        found = job.pace(seconds)
        others = (_used_by_others(job) - before) / (time.monotonic() - begin)
    if others > QUIET:
        raise Disturbed(f"others kept {others:.2f} cores busy")
    return found


def _used_by_others(job: Job) -> float:
    """CPU seconds that other programs used so far, but for a constant."""
    machine = psutil.cpu_times()
    root = psutil.Process(job.pid)
    own = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    used = sum(times.user + times.system + times.children_user + times.children_system for times in own)
    return sum(machine) - machine.idle - machine.iowait - machine.guest - machine.guest_nice - used


def true_share(name: str, seconds: float, rounds: int) -> float:
    """What the fix gains, measured by turns."""
    paces = [(pace(name, "bottleneck", seconds), pace(name, "fixed", seconds)) for _ in range(rounds)]
    slow, fixed = (statistics.mean(column) for column in zip(*paces, strict=True))
    print(f"{name}: {slow:.1f} steps/s with the bottleneck, {fixed:.1f} fixed: {1 - slow / fixed:.3f}", flush=True)
    return 1 - slow / fixed


def attach(job: Job, seconds: float, file: Path) -> None:
    """Watches a job from outside."""
    job.wait_until_ready()
    time.sleep(WARM_UP_S)
    command = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid), "--duration", str(seconds)]
    subprocess.run([*command, "--recording", str(file)], capture_output=True, check=False)


def watch(name: str, seconds: float, file: Path) -> None:
    """Records a job with its bottleneck."""
    if described(name).get("way") != "diagnose":
        with running(name, "bottleneck") as job:
            attach(job, seconds, file)
        return
    with running(name, "bottleneck", RECORDING=str(file)) as job:
        job.wait_until_ready()
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists() or ways.sidecars(job):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no diagnosis came: {job.output()[-500:]}")
            time.sleep(0.2)


def disturbed(file: Path) -> float:
    """How many cores other programs kept busy while a job was recorded."""
    recording = Recording.open(file)
    times, values = recording.series.get(("host", "neighbours_seconds_total"), ([0], [0.0]))
    recording.close()
    return (values[-1] - values[0]) / max((times[-1] - times[0]) / 1e9, 1e-9)


def record(name: str, seconds: float, share: float | None, renames: dict[str, str], keep: Path) -> None:
    """Records a job, and adds it to the corpus."""
    said = described(name)
    file = keep / f"{name}.perfdoctor"
    file.unlink(missing_ok=True)
    if not jobs.wait_until_quiet():
        raise Disturbed("the machine is not quiet")
    watch(name, seconds, file)
    others = disturbed(file)
    if others > QUIET:
        raise Disturbed(f"others kept {others:.2f} cores busy")
    straggler = int(said["straggler"]) if "straggler" in said else None
    told: dict[str, Any] = {"about": said["about"], "truth": corpus.truth(said["cause"], share, straggler)}
    try:
        corpus.add(file, name, told, renames)
    except PerfDoctorError as error:
        print(f"{name}: {error} {error.hint}", flush=True)
    else:
        print(f"{name}: recorded", flush=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = sorted(path.stem for path in JOBS.glob("*.py") if path.stem != "pace")
    without = jobs.why_no_gpu()
    here = [name for name in every if not (without and "needs" in described(name))]
    parser.add_argument("--only", nargs="+", choices=every, default=here, metavar="NAME", help="these jobs only")
    parser.add_argument("--pace", action="store_true", help="only measure what the fix gains")
    parser.add_argument("--seconds", type=float, default=4.0, help="to measure a pace (default 4)")
    parser.add_argument("--rounds", type=int, default=2, help="how often (default 2)")
    parser.add_argument("--duration", type=float, default=8.0, help="to watch from outside (default 8)")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()), help="where recordings lie first")
    parser.add_argument("--rename", action="append", default=[], metavar="NAME=WORD", help="as corpus.py add has it")
    arguments = parser.parse_args()
    jobs.end_with_finally()
    renames = dict(rename.split("=", 1) for rename in arguments.rename)
    left = []
    for name in arguments.only:
        try:
            sound = "fixed" not in described(name)
            share = None if sound else round(true_share(name, arguments.seconds, arguments.rounds), 3)
            if not arguments.pace:
                record(name, arguments.duration, share, renames, arguments.keep)
        except (Disturbed, RuntimeError) as problem:
            print(f"{name}: thrown away, {problem}", flush=True)
            left.append(name)
    if left:
        print(f"To be repeated: {' '.join(left)}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
