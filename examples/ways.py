"""The two ways in, as the scorecard takes them: ``attach`` from outside, ``diagnose()`` around a step or the loop."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs

ATTACH, INSIDE = "attach", ("step", "loop")
# diagnose() watches for 15 s and at least 10 steps, and starts and reports on a busy machine.
PATIENCE_S = 120.0


@dataclass
class Watched:
    """What a diagnosis said, and how long the user waited for it.

    Attributes:
        extra_s: beyond the time that was watched.
        stopwatch_s: median of the steps that ``diagnose()`` observed, by the example's own clock.
        stopwatch_mean_s: their mean.
    """

    said: dict[str, Any]
    extra_s: float
    stopwatch_s: float | None = None
    stopwatch_mean_s: float | None = None


def attach(job: jobs.Job, duration: float) -> Watched:
    """Runs ``perfdoctor attach`` on a job."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "diagnosis.json")
        command = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid)]
        begin = time.monotonic()
        done = subprocess.run(
            [*command, "--duration", str(duration), "--json", str(target)],
            capture_output=True, text=True, timeout=duration + 120, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"attach ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        return Watched(json.loads(target.read_text()), time.monotonic() - begin - duration)


class Inside:
    """An example that runs under ``diagnose()``.

    Args:
        way: what the ``with`` stands around, ``step`` or ``loop``.
        folder: where the files of the diagnosis go.
    """

    def __init__(self, way: str, folder: str) -> None:
        self._json, self._recording = Path(folder, "diagnosis.json"), Path(folder, "run.perfdoctor")
        files = ("--json", str(self._json), "--recording", str(self._recording))
        self.options = ("--diagnose", way, *files)

    def wait(self, job: jobs.Job) -> Watched:
        """Waits until the diagnosis is there and perfdoctor has stepped aside."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._json.exists() or sidecars(job):
            if time.monotonic() > deadline or job.process.poll() is not None:
                raise RuntimeError(f"no diagnosis came: {job.output()[-300:]}")
            time.sleep(0.1)
        start_ns, end_ns = self._observed()
        laps = job.laps(start_ns, end_ns)
        age_s = time.time() - self._json.stat().st_mtime
        extra_s = time.monotonic() - age_s - end_ns / 1e9
        middles = (statistics.median(laps), statistics.fmean(laps)) if laps else ()
        return Watched(json.loads(self._json.read_text()), extra_s, *middles)

    def _observed(self) -> tuple[int, int]:
        """When the observed steps of rank 0 began and ended."""
        from perfdoctor.recording.reader import Recording
        from perfdoctor.recording.schema import Mark

        recording = Recording.open(self._recording)
        marks = [mark for mark in recording.rows(Mark) if mark.what in ("observed", "step")]
        begins = [mark for mark in marks if mark.what == "observed" and mark.edge == "begin"]
        recording.close()
        if not begins:
            raise RuntimeError("no observed steps were recorded")
        first = begins[0]
        return first.time_ns, max(mark.time_ns for mark in marks if mark.pid == first.pid)


def sidecars(job: jobs.Job) -> list[psutil.Process]:
    """perfdoctor's processes among a job's descendants."""
    return [one for one in psutil.Process(job.pid).children(recursive=True) if _is_sidecar(one)]


def _is_sidecar(process: psutil.Process) -> bool:
    try:
        return any("perfdoctor.capture.sidecar" in word for word in process.cmdline())
    except psutil.Error:
        return False


@contextmanager
def watching(way: str) -> Iterator[Inside | None]:
    """What an example needs to be diagnosed in one way; None where it needs nothing."""
    if way == ATTACH:
        yield None
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Inside(way, folder)
