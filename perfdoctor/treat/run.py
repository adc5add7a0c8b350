"""One run of a job: started with some changes, watched step by step, and ended when enough was seen."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from perfdoctor.knowledge import environment, thresholds
from perfdoctor.messages import Text, say
from perfdoctor.probes import treated
from perfdoctor.probes.treated import notes
from perfdoctor.probes.treated.sitecustomize import SETTINGS
from perfdoctor.recording.clock import now_ns, seconds
from perfdoctor.treat import processes
from perfdoctor.treat.judging import steady_from
from perfdoctor.treat.workplace import Workplace

_ASK_EVERY_S = 0.1  # whether enough steps are done
_MEMORY_EVERY_S = 0.5  # a reading opens a file per process
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class RunChange:
    """What is other than usual in a run.

    Attributes:
        settings: for the hook in the job's processes, by kind of change.
        variables: environment variables; None takes one away.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepWindow:
    """Which steps of a run are measured.

    Attributes:
        first: how many are left out at least.
        steps: how many are measured; runs are compared over the same steps.
        start_s: how long the first step may take to come.
        limit_s: how long the steps may take together.
        settles_late: as in a run.
    """

    first: int
    steps: int
    start_s: float
    limit_s: float
    settles_late: bool = False


@dataclass(slots=True)
class SeenRun:
    """What was seen of a run.

    Attributes:
        started_ns: when it was started (CLOCK_MONOTONIC).
        ends_ns: when each step ended.
        step_is: ``optimizer step``, or ``batch`` where no optimizer made one.
        losses: of each backward pass.
        facts: what the job made and called: tables with a ``kind``.
        memory_bytes: peak of all processes together.
        memory_left: the least that was free of the machine's memory, as a fraction.
        status: the exit status of a job that has ended by itself; None if it was ended.
        failure: why it is of no use; "" if it is.
        first: how many steps are left out at least.
        steps: how many of those that follow are measured; None for all.
        settles_late: whether its first steps differ more than those of others, so that more may have to be left out.
    """

    started_ns: int
    ends_ns: list[int] = field(default_factory=list)
    step_is: str = "optimizer step"
    losses: list[float] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    memory_bytes: int = 0
    memory_left: float = 1.0
    gpu_memory_bytes: int | None = None
    status: int | None = None
    failure: Text = ""
    first: int = 0
    steps: int | None = None
    settles_late: bool = False

    @property
    def first_step_s(self) -> float | None:
        """Seconds from the start to the end of the first step."""
        return seconds(self.ends_ns[0] - self.started_ns) if self.ends_ns else None

    def times(self) -> list[float]:
        """Seconds that each step took but the first, whose beginning is not known."""
        return [seconds(end - begin) for begin, end in pairwise(self.ends_ns)]

    def pace(self) -> float | None:
        """Seconds per step over the steps that are measured, the mean; None if there are none."""
        last = len(self.ends_ns) if self.steps is None else self.first + self.steps
        times = self.times()[self.first : last]
        if self.settles_late:
            times = times[steady_from(times) :]
        return statistics.fmean(times) if times else None

    @property
    def lacks_memory(self) -> bool:
        """Whether the machine had hardly any memory left."""
        return self.memory_left < thresholds.MEMORY_LEFT

    def applied(self) -> set[str]:
        """The kinds of changes that have taken hold."""
        return {str(fact.get("change")) for fact in self.facts if fact["kind"] == "applied"}


class LiveRun:
    """A run that goes on.

    Args:
        process: its first process.
        folder: where its processes leave their notes.
        errors: the file of what it writes on stderr.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, errors: Path) -> None:
        self.process = process
        self.seen = SeenRun(now_ns())
        self._folder = folder
        self._errors = errors
        self._events: dict[Path, _Events] = {}
        self._memory_due = 0.0

    def look(self) -> SeenRun:
        """What has been seen so far."""
        for file in self._folder.glob(f"*{notes.EVENTS}"):
            self._events.setdefault(file, _Events(file)).read()
        self._read_events()
        if time.monotonic() >= self._memory_due:
            self._memory_due = time.monotonic() + _MEMORY_EVERY_S
            self._look_at_memory()
        self.seen.status = self.process.poll()
        return self.seen

    def wait(self, enough: Callable[[SeenRun], bool], until: float) -> bool:
        """Waits until enough was seen; returns whether that was so before the job or the time has ended.

        Args:
            enough: asked again and again.
            until: by ``time.monotonic``.
        """
        while not enough(self.look()):
            if self.seen.status is not None or time.monotonic() >= until:
                return enough(self.look())
            time.sleep(_ASK_EVERY_S)
        return True

    def conclude(self) -> SeenRun:
        """Everything that was seen, facts included."""
        self.look()
        self.seen.facts = list(_facts(self._folder))
        return self.seen

    def last_words(self) -> str:
        """The last line that the job wrote on stderr; "" if none."""
        text = _ESCAPES.sub("", self._errors.read_text("utf-8", errors="replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
        return (said or lines or [""])[-1]

    def _read_events(self) -> None:
        processes = [one.by_kind for one in self._events.values()]
        processes = [one for one in processes if one[notes.STEP] or one[notes.BATCH]]
        if not processes:
            return
        # Rank 0 of several; of processes without ranks, the one that makes most steps.
        ranked = min(processes, key=lambda one: (_rank(one), -len(one[notes.STEP]), -len(one[notes.BATCH])))
        steps = [end for end, optimizer in ranked[notes.STEP] if optimizer == 0]
        self.seen.step_is = "optimizer step" if steps else "batch"
        self.seen.ends_ns = steps or [end for end, _ in ranked[notes.BATCH]]
        self.seen.losses = [loss for _, loss in ranked[notes.LOSS]]
        peaks = [value for one in processes for _, value in one[notes.GPU_MEMORY]]
        self.seen.gpu_memory_bytes = int(max(peaks)) if peaks else None

    def _look_at_memory(self) -> None:
        self.seen.memory_bytes = max(self.seen.memory_bytes, processes.memory_of(self.process))
        memory = psutil.virtual_memory()
        self.seen.memory_left = min(self.seen.memory_left, memory.available / memory.total)


class Runner:
    """Runs a job again and again.

    Args:
        command: how the user starts it.
        workplace: where it runs.
    """

    def __init__(self, command: Sequence[str], workplace: Workplace) -> None:
        self.command = tuple(command)
        self.count = 0
        self._workplace = workplace

    @contextmanager
    def live(self, change: RunChange) -> Iterator[LiveRun]:
        """Starts the job with some changes, and ends all of its processes.

        Raises:
            PerfDoctorError: it cannot be started.
        """
        self.count += 1
        token = uuid.uuid4().hex
        noted = self._workplace.scratch / token
        noted.mkdir()
        with (
            self._workplace.copy() as folder,
            (noted / "out").open("wb") as output,
            (noted / "err").open("wb") as errors,
        ):
            copies: dict[str, str] = {}
            if "staged" in change.settings:
                copies = self._workplace.staged(folder)
                change = replace(change, settings={**change.settings, "staged": copies})
            surroundings = self._surroundings(change, folder, noted, token)
            with processes.running(self.command, folder, surroundings, output, errors, copies) as process:
                yield LiveRun(process, noted, noted / "err")

    def run(self, change: RunChange, window: StepWindow) -> SeenRun:
        """Runs the job with some changes until the steps to measure are over, or it takes too long."""
        with self.live(change) as live:
            live.wait(lambda seen: bool(seen.ends_ns), time.monotonic() + window.start_s)
            last = window.first + window.steps + 1
            if live.seen.ends_ns:
                live.wait(lambda seen: len(seen.ends_ns) >= last, time.monotonic() + window.limit_s)
            seen = live.conclude()
            seen.first, seen.steps, seen.settles_late = window.first, window.steps, window.settles_late
            seen.failure = _why_useless(seen, live, window)
        return seen

    def _surroundings(self, change: RunChange, folder: Path, noted: Path, token: str) -> dict[str, str]:
        settings = {
            "folder": str(noted),
            "root": str(folder),
            "original": str(self._workplace.source),
            "saves": str(noted / "saves"),
            "changes": dict(change.settings),
        }
        hook = str(Path(treated.__path__[0]))
        path = os.pathsep.join(filter(None, (hook, os.environ.get("PYTHONPATH"))))
        variables: dict[str, str | None] = {**os.environ, **trackers_offline(os.environ), **change.variables}
        variables |= {SETTINGS: json.dumps(settings), "PYTHONPATH": path, processes.TOKEN: token}
        variables |= {"PERFDOCTOR_DISABLE": "1", "PWD": str(folder)}
        return {name: value for name, value in variables.items() if value is not None}


def trackers_offline(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep experiment trackers from sending what a trial does; none for those that send nothing."""
    trackers = environment.TRACKERS_OFFLINE
    return {name: mode for name, mode in trackers.items() if variables.get(name) not in environment.SENDS_NOTHING}


def _why_useless(seen: SeenRun, live: LiveRun, window: StepWindow) -> Text:
    if seen.status:
        return say("treat.crashed", status=seen.status, said=live.last_words())
    if not seen.ends_ns:
        return say("treat.no_step", ended=seen.status is not None, waited=window.start_s)
    if len(seen.times()) < window.first + thresholds.FEWEST_TRIAL_STEPS:
        return say("treat.few_steps", steps=len(seen.ends_ns), ended=seen.status is not None)
    return ""


def _facts(folder: Path) -> Iterator[dict[str, Any]]:
    """What all processes of a run have reported, each fact once; a line that is being written is left out."""
    known = set()
    for file in sorted(folder.glob(f"*{notes.FACTS}")):
        for line in file.read_text("utf-8", errors="replace").split("\n")[:-1]:
            if line not in known:
                known.add(line)
                yield json.loads(line)


class _Events:
    """The events of a process, by kind: time and value. Each is read once, since the job trains meanwhile."""

    def __init__(self, file: Path) -> None:
        self.by_kind: dict[int, list[tuple[int, float]]] = {kind: [] for kind in range(notes.GPU_MEMORY + 1)}
        self._file = file
        self._read = 0

    def read(self) -> None:
        """Reads what is new, as far as it is whole."""
        with self._file.open("rb") as opened:
            opened.seek(self._read)
            new = opened.read()
        whole = len(new) // notes.RECORD.size * notes.RECORD.size
        self._read += whole
        for kind, time_ns, value in notes.RECORD.iter_unpack(new[:whole]):
            self.by_kind[kind].append((time_ns, value))


def _rank(events: Mapping[int, Sequence[tuple[int, float]]]) -> float:
    return max(0.0, events[notes.PROCESS][0][1]) if events[notes.PROCESS] else 0.0
