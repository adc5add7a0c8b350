"""Looks at one job on a GPU for as short as it can: its pace, attach, a trace, and the pace of its fixed state.

Nothing is analysed here: the GPU would wait for it. ``telling.py`` does that later, from what lies in the job's folder.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import beside
import jobs
import planted
from asked import LOOKS

GATHERED, FIXED = "gathered.json", "fixed.perfdoctor"
_GATE = Path(__file__).resolve().parent / "gate"
_WARM_UP_S, _READY_S, _TRACE_S, _INSIDE_S, _PATIENCE_S = 1.2, 120.0, 60.0, 150.0, 60.0
# The job runs until it is ended.
_FOREVER_S = 3600.0
# With fewer cores, what imports libraries takes them from the job that is measured.
_CORES_TO_SPARE = 8


@dataclass(frozen=True)
class Plan:
    """How long to look, and at what.

    Attributes:
        pace_s: to measure a pace.
        watch_s: to attach.
        inside: let examples be looked at by ``diagnose()`` as well.
        fixed: attach to the fixed state as well.
        variables: environment of the jobs.
    """

    pace_s: float
    watch_s: float
    inside: bool
    fixed: bool
    variables: dict[str, str]


class Gated:
    """A job whose process has begun and waits at the gate; it is ended by ``close``."""

    def __init__(self, one: planted.Planted, state: str, plan: Plan, looks: Path) -> None:
        self.name = one.name
        self._stack = ExitStack()
        self._gate = Path(self._stack.enter_context(TemporaryDirectory()), "gate")
        path = os.pathsep.join(filter(None, [str(_GATE), os.environ.get("PYTHONPATH")]))
        gate = {"GATE": str(self._gate), "GATE_IMPORTS": " ".join(one.imports()), "PYTHONPATH": path}
        variables = {**plan.variables, **gate, LOOKS: str(looks)}
        words = one.words(state, _FOREVER_S)
        self.job = self._stack.enter_context(jobs.started(one.script, *words, variables=variables))

    def make_context(self) -> None:
        """Lets it make its CUDA context; until then the job that is watched has no neighbour on the GPU."""
        self._gate.with_name("gate.context").touch()

    def open(self) -> jobs.Job:
        """Lets the job begin, and returns when its first step is done."""
        self._gate.touch()
        self.job.wait_until_ready(_READY_S)
        return self.job

    def close(self) -> None:
        self._stack.close()


class Look:
    """One job, looked at in a folder. What fails is a note in its place; the rest goes on.

    Args:
        one: which.
        plan: how long to look.
        folder: an empty folder for all that is gathered.
        before: the job at its gate.
        following: begins the next job, or gives the one that was begun; None if there is none.
    """

    def __init__(
        self, one: planted.Planted, plan: Plan, folder: Path, before: Gated, following: Callable[[], Gated | None]
    ) -> None:
        self._one, self._plan, self._folder = one, plan, folder
        self._before, self._following = before, following
        self._fixed: Gated | None = None
        self._begin = time.monotonic()
        self.told: dict[str, Any] = {"name": one.name, "notes": [], "at_s": {}}

    def gather(self) -> dict[str, Any]:
        """Everything; ``gathered.json`` comes last, and says that the folder is whole."""
        with ExitStack() as stack:
            stack.callback(self._close_fixed)
            stack.callback(self._before.close)
            self._try(self._bottleneck, "")
            self._before.close()
            if not self._one.sound:
                self._try(self._pace_fixed, "fixed: ")
        self._mark("end")
        (self._folder / GATHERED).write_text(json.dumps(self.told, indent=1))
        return self.told

    def _try(self, part: Callable[[], None], name: str) -> None:
        try:
            part()
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            self._note(f"{name}{problem}")

    def _close_fixed(self) -> None:
        if self._fixed is not None:
            self._fixed.close()

    def _bottleneck(self) -> None:
        job = self._before.open()
        self._mark("ready")
        if (os.cpu_count() or 1) >= _CORES_TO_SPARE:
            self._begin_others()
        time.sleep(_WARM_UP_S)
        self.told["bottleneck_pace"] = job.pace(self._plan.pace_s)
        with beside.nvidia_smi(self._folder / beside.SMI):
            self._attach(job, self._folder / beside.RECORDING)
        self._mark("attached")
        for other in self._begin_others():
            other.make_context()
        self._trace(job)
        if self._plan.inside and self._one.example:
            self._inside(job)

    def _begin_others(self) -> list[Gated]:
        """The fixed state of this job and the next job import their libraries meanwhile."""
        if self._fixed is None and not self._one.sound:
            self._fixed = Gated(self._one, "fixed", self._plan, self._folder)
        following = self._following()
        # With a context it would be a neighbour of the fixed state, which shall be watched alone.
        alone = following if following is not None and not self._plan.fixed else None
        return [one for one in (self._fixed, alone) if one is not None]

    def _pace_fixed(self) -> None:
        self._fixed = self._fixed or Gated(self._one, "fixed", self._plan, self._folder)
        job = self._fixed.open()
        time.sleep(_WARM_UP_S)
        self.told["fixed_pace"] = job.pace(self._plan.pace_s)
        if self._plan.fixed:
            self._attach(job, self._folder / FIXED)

    def _attach(self, job: jobs.Job, to: Path) -> None:
        with TemporaryDirectory(dir=self._folder) as gathered:
            command = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid), "--gather", gathered]
            command += ["--duration", str(self._plan.watch_s)]
            patience = self._plan.watch_s + _PATIENCE_S
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience)
            found = list(Path(gathered).glob("*.perfdoctor"))
            if done.returncode != 0 or not found:
                self._note(f"attach ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
            for file in found:
                file.rename(to)

    def _trace(self, job: jobs.Job) -> None:
        """Some steps under torch.profiler, which the job does itself when it is asked to."""
        (self._folder / "trace").touch()
        traces = [self._folder / f"rank{rank}.json.gz" for rank in range(self._one.ranks)]
        if not _wait(lambda: all(trace.exists() for trace in traces), job, _TRACE_S):
            self._note(f"no trace came in {_TRACE_S:.0f} s: {job.output()[-300:]}")
        self._mark("traced")

    def _inside(self, job: jobs.Job) -> None:
        """``with diagnose():`` around each step, its profile included."""
        (self._folder / "inside").touch()
        if not _wait(lambda: _is_whole(self._folder / "inside.json"), job, _INSIDE_S):
            self._note(f"no diagnosis came from inside: {job.output()[-300:]}")
        self._mark("inside")

    def _note(self, text: str) -> None:
        self.told["notes"].append(text[-600:])

    def _mark(self, what: str) -> None:
        self.told["at_s"][what] = round(time.monotonic() - self._begin, 1)


def _wait(done: Callable[[], bool], job: jobs.Job, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline or job.process.poll() is not None:
            return done()
        time.sleep(0.05)
    return True


def _is_whole(file: Path) -> bool:
    try:
        json.loads(file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return True
