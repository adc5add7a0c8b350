"""For the tests of attach: real jobs to watch, and perfdoctor run the way users run it."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from perfdoctor.probes.readers.syscalls import NAMES
from tests.files import TARGETS

TRAINING = (sys.executable, str(TARGETS / "job_training.py"))
SILENT = (sys.executable, str(TARGETS / "job_silent.py"))
PERFDOCTOR = (sys.executable, "-m", "perfdoctor")
WITHOUT_PTRACE = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
NOBODY = "65534"
# Another user who may read the files of this Python wherever they lie, and has no other right.
AS_NOBODY = (
    "setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups",
    "--inh-caps", "-all,+dac_read_search", "--ambient-caps", "+dac_read_search",
    "--bounding-set", "-all,+dac_read_search",
)  # fmt: skip
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

# Programs end when what they wait for has come, however busy the machine is; this is for those that never do.
PATIENCE_S = 240

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users and rights, and mount")

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be shared out")


@dataclass
class Started:
    """A job that has been started, and what it has printed so far."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, word: str) -> int:
        """Reads on until a line starts with ``word``; returns the pid that stands behind it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith(f"{word} "):
                return int(line.split()[1])
        raise AssertionError(f"the job ended without saying {word}: {self.lines}")


@contextmanager
def job(*command: str | bytes, ready: str = "ready", **how: Any) -> Iterator[Started]:
    """Runs a job in a session of its own; kills all of it in the end."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **{"env": ENVIRONMENT, **how},
    ) as process:
        started = Started(process)
        try:
            if ready:
                started.wait_for(ready)
            yield started
        finally:
            try:
                family = [parent := psutil.Process(process.pid), *parent.children(recursive=True)]
            except psutil.NoSuchProcess:  # it has ended, and the test has waited for it
                family = []
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait()


@dataclass
class Answer:
    """What perfdoctor said, and the JSON that it wrote (empty if none)."""

    status: int
    out: str
    err: str
    told: dict[str, Any]

    @property
    def errors(self) -> list[str]:
        """Lines on stderr."""
        return self.err.splitlines()


def perfdoctor(*arguments: object, prefix: Sequence[str] = (), timeout: float = PATIENCE_S, **how: Any) -> Answer:
    """Runs perfdoctor to its end."""
    done = subprocess.run(
        [*prefix, *PERFDOCTOR, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **{"env": ENVIRONMENT, **how},
    )
    words = list(map(str, arguments))
    file = Path(*words[words.index("--json") + 1 :][:1]) if "--json" in words else Path()
    told = json.loads(file.read_text()) if file.suffix == ".json" and file.exists() else {}
    return Answer(done.returncode, done.stdout, done.stderr, told)


def refused(answer: Answer, *words: str) -> None:
    """Makes sure that there was one sentence with these words, one next move, and no traceback."""
    assert answer.status == 1, answer
    assert len(answer.errors) == 2, answer.err
    sentence, move = answer.errors
    assert sentence.startswith("perfdoctor: ")
    assert sentence.endswith("."), sentence
    assert move.startswith("  ")
    assert move.strip(), answer.err
    for word in words:
        assert word in answer.err, answer.err


def is_watched(pid: int) -> bool:
    """Whether some process has the memory of another one open, as whoever reads its interpreter and stacks has."""
    memory = f"/proc/{pid}/mem"
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) == memory:
                return True
    return False


def sampling(pid: int) -> list[psutil.Process]:
    """Programs that py-spy runs on a process just now."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if len(words) > 3 and "py-spy" in words[0] and str(pid) in words:
            found.append(process)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended; where nobody waits for orphans, as in many containers, it stays a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def watched_for(recording: Path, seconds: float) -> bool:
    """Whether a recording that is being made has so many seconds of the job."""
    try:
        with closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as db:
            first, last = db.execute("SELECT min(time_ns), max(time_ns) FROM ThreadSample").fetchone()
    except sqlite3.Error:  # it has not begun, or is being written
        return False
    return first is not None and last - first >= seconds * 1e9


def in_call(pid: int, name: str) -> bool:
    """Whether the main thread of a process is in this system call."""
    number = Path(f"/proc/{pid}/syscall").read_text().split()[0]
    return number.isdigit() and NAMES.get(int(number)) == name


def until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Waits for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def attached(pid: int, *arguments: object, **how: Any) -> Iterator["subprocess.Popen[str]"]:
    """perfdoctor while it watches, in a process group of its own, as a shell would start it."""
    with subprocess.Popen(
        [*PERFDOCTOR, "attach", str(pid), *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **{"env": ENVIRONMENT, "stdout": subprocess.PIPE, **how},
    ) as process:
        try:
            yield process
        finally:
            process.poll() is None and os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system in memory."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def filling_up(recording: Path, after_s: float = 2.0) -> Iterator[None]:
    """A disk that others fill up, some seconds after a recording was begun on it."""
    over = threading.Event()

    def fill() -> None:
        while not over.wait(0.05):
            if recording.exists():
                over.wait(after_s)
                with suppress(OSError), (recording.parent / "filler").open("wb", buffering=0) as filler:
                    while filler.write(bytes(4096)):
                        pass
                return

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def is_a_diagnosis(told: dict[str, Any]) -> None:
    """Makes sure that a JSON report keeps the contract of the design."""
    assert told["schema"] == 1
    for key in ("perfdoctor", "verdict", "breakdown", "findings", "ranks", "steps", "not_examined", "job"):
        assert key in told
    assert sum(part["share"] for part in told["breakdown"]) == pytest.approx(1, abs=0.001)
    verdict = told["verdict"]
    keys = {
        "bottleneck", "cause", "share", "confidence", "predicted_speedup", "straggler_rank", "level", "summary",
    }  # fmt: skip
    assert verdict.keys() >= keys
    assert (verdict["bottleneck"] is None) == (verdict["cause"] is None)
    for finding in told["findings"]:
        assert finding.keys() >= {
            "cause", "bottleneck", "severity", "share", "predicted_speedup", "evidence", "fixes", "refuted_by", "ranks"
        }  # fmt: skip
        assert 0 <= finding["share"] <= 1
        assert finding["predicted_speedup"] >= 1
