"""Starts examples as jobs of their own and measures their pace, for scorecard, benchmark and tests."""

import contextlib
import functools
import mmap
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent))
import common
from machine import needs_root as why_no_control_groups

EXAMPLES = Path(__file__).resolve().parent
HEALTHY = "cpu.model_compute"
HEALTHY_ON_GPU = "gpu.compute"
WARM_UP_S = 2.0


@dataclass(frozen=True)
class Example:
    """A folder under ``examples/``, or under ``examples/gpu/``.

    Attributes:
        name: of the folder; ``gpu/launch_bound`` for instance.
        expected: the cause that a diagnosis should name.
        straggler: the rank that the others wait for, if there is one.
        advice: what the title of the change begins with that its ``fixed`` state makes, as a regular expression; "" for
            none.
    """

    name: str
    expected: str
    straggler: int | None
    advice: str = ""

    @property
    def sound(self) -> bool:
        return self.expected in (HEALTHY, HEALTHY_ON_GPU)

    @property
    def needs_gpu(self) -> bool:
        return self.name.startswith("gpu/")

    @property
    def needs_root(self) -> bool:
        return "Needs root" in (EXAMPLES / self.name / "README.md").read_text()


def examples(only: list[str] | None = None) -> list[Example]:
    """All examples, or those named, as their READMEs describe them."""
    found = []
    for readme in sorted([*EXAMPLES.glob("*/README.md"), *EXAMPLES.glob("gpu/*/README.md")]):
        head = dict(line.split(": ", 1) for line in readme.read_text().split("\n\n")[0].splitlines())
        straggler = int(head["straggler"]) if "straggler" in head else None
        name = readme.parent.relative_to(EXAMPLES).as_posix()
        found.append(Example(name, head["expected"], straggler, head.get("advice", "")))
    unknown = set(only or ()) - {example.name for example in found}
    if unknown:
        sys.exit(f"no such example: {', '.join(sorted(unknown))}")
    return [example for example in found if not only or example.name in only]


def left_out(chosen: list[Example]) -> dict[str, str]:
    """Which of some examples cannot run on this machine, and why."""
    no_groups = why_no_control_groups() if any(example.needs_root for example in chosen) else None
    no_gpu = why_no_gpu() if any(example.needs_gpu for example in chosen) else None
    reasons = {example.name: no_groups for example in chosen if example.needs_root}
    reasons |= {example.name: no_gpu for example in chosen if example.needs_gpu}
    return {name: reason for name, reason in reasons.items() if reason}


@functools.cache
def why_no_gpu() -> str | None:
    """Why the GPU examples cannot run here, or None; asked in a process of its own, so that this one stays light."""
    probe = "import accelerator; print(accelerator.why_none() or '')"
    command = [sys.executable, "-c", probe]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLES / "gpu")
    if done.returncode != 0:
        return f"needs an accelerator, and torch cannot be asked: {done.stderr.strip()[-200:]}"
    return done.stdout.strip() or None


class Job:
    """A running example.

    Attributes:
        pid: of the process that was started: the trainer, or its launcher.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", counter: mmap.mmap, log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._counter = counter
        self._log = log

    def progress(self) -> tuple[int, float]:
        """Steps done so far, and when the last one ended (CLOCK_MONOTONIC seconds)."""
        while True:
            first: tuple[int, int] = common.COUNTER.unpack_from(self._counter)
            if first == common.COUNTER.unpack_from(self._counter):
                return first[0], first[1] / 1e9

    def laps(self, start_ns: int, end_ns: int) -> list[float]:
        """Seconds of each of the latest steps that lie between two instants."""
        last = self.progress()[0]
        numbers = range(max(1, last - common.LAPS + 2), last + 1)
        places = (common.COUNTER.size + number % common.LAPS * common.LAP.size for number in numbers)
        ends = [common.LAP.unpack_from(self._counter, place)[0] for place in places]
        within = [end for end in ends if start_ns <= end <= end_ns]
        return [(later - end) / 1e9 for end, later in pairwise(within)]

    def wait_until_ready(self, timeout_s: float = 120.0) -> None:
        """Returns after the first step; raises RuntimeError with the job's output if it never comes."""
        deadline = time.monotonic() + timeout_s
        while self.progress()[0] < 1:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the job did not get ready: {self.output()[-2000:]}")
            time.sleep(0.05)

    def pace(self, seconds: float) -> float:
        """Steps per second in the window that begins now."""
        begin = self.progress()
        time.sleep(seconds)
        end = self.progress()
        return (end[0] - begin[0]) / (end[1] - begin[1]) if end[0] > begin[0] else 0.0

    def output(self) -> str:
        """What the job has printed."""
        return self._log.read_text(errors="replace")


@contextlib.contextmanager
def running(
    example: Example, state: str, seconds: float, *options: str, variables: Mapping[str, str] | None = None
) -> Iterator[Job]:
    """The example as a process of its own; it is ended, all its descendants included, with this context.

    Args:
        example: which.
        state: ``bottleneck`` or ``fixed``.
        seconds: after which it ends by itself.
        options: added to its command line.
        variables: added to its environment.
    """
    script = EXAMPLES / example.name / "train.py"
    with started(script, state, "--seconds", str(seconds), *options, variables=variables) as job:
        yield job


def pace_of(example: Example, state: str, seconds: float) -> float:
    """Steps per second of an example that runs alone."""
    with running(example, state, seconds + 60) as job:
        job.wait_until_ready()
        time.sleep(WARM_UP_S)
        return job.pace(seconds)


@contextlib.contextmanager
def started(
    script: Path, *arguments: str, variables: Mapping[str, str] | None = None, through: Sequence[str] = ()
) -> Iterator[Job]:
    """A script that counts its steps, run in a folder of its own; it is ended, descendants included, with this context.

    Args:
        script: which.
        arguments: its command line.
        variables: added to its environment.
        through: what starts the script in place of Python.
    """
    with tempfile.TemporaryDirectory() as folder:
        progress, log = Path(folder, "progress"), Path(folder, "output")
        progress.touch()
        os.truncate(progress, common.PROGRESS_BYTES)
        environment = {**os.environ, **(variables or {}), common.PROGRESS: str(progress)}
        with log.open("wb") as out, progress.open("r+b") as file:
            counter = mmap.mmap(file.fileno(), common.PROGRESS_BYTES)
            command = [*(through or [sys.executable]), str(script), *arguments]
            process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=folder)
        try:
            yield Job(process, counter, log)
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    for member in psutil.wait_procs(family, timeout=5)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.kill()
    process.wait()


def end_with_finally() -> None:
    """Lets SIGTERM end this program through its ``finally`` blocks, so that no job is left running."""
    signal.signal(signal.SIGTERM, lambda signum, _: sys.exit(128 + signum))


def cores_busy(seconds: float = 0.5) -> float:
    """How many cores of this machine were busy in the window that begins now."""
    idle = 1 - psutil.cpu_percent(interval=seconds) / 100
    return (1 - idle) * (psutil.cpu_count() or 1)


def wait_until_quiet(limit: float = 0.2, timeout_s: float = 60.0) -> bool:
    """Waits until nobody else computes on this machine; False if that did not come."""
    deadline = time.monotonic() + timeout_s
    while cores_busy() > limit:
        if time.monotonic() > deadline:
            return False
        time.sleep(1.0)
    return True


def machine() -> str:
    """This machine and the versions that matter, in one line."""
    from importlib.metadata import version

    model = next(
        (
            line.split(": ")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return (
        f"{psutil.cpu_count()} cores of {model}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, torch {version('torch')}, perfdoctor {version('perfdoctor')}"
    )
