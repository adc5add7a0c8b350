"""One treatment: the job is diagnosed as it is, then run again and again, until it is clear which changes help."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import record
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import Message, say
from perfdoctor.probes import all_probes
from perfdoctor.recording.reader import Recording
from perfdoctor.results.treatment import Outcome, Treated
from perfdoctor.treat.judging import steady_from
from perfdoctor.treat.outcome import control_of, in_order, trial_of
from perfdoctor.treat.patch import edits_of, make_patch
from perfdoctor.treat.run import LiveRun, RunChange, Runner, SeenRun, StepWindow
from perfdoctor.treat.search import Arm, Found, search
from perfdoctor.treat.situation import Situation, Treatment, own_cores
from perfdoctor.treat.staging import pieces, waited_files
from perfdoctor.treat.treatments import choose
from perfdoctor.treat.workplace import Workplace

# As `attach` watches, where the budget allows it; and at least.
WATCH_S, LEAST_WATCH_S = 15.0, 5.0
# Part of the budget that goes into the diagnosis at most, and how long a first step may take beyond its usual time.
_DIAGNOSIS_PART = 0.2
_START_MARGIN_S, _SLOW_START_S = 30.0, 240.0
# Steps and seconds before the job is watched: the first steps are not as the others.
_SETTLED_STEPS, _SETTLED_S = 5, 2.0
# Part of the measured seconds that steps may take which are left out.
_LONGEST_WARMUP = 0.25
# So many runs should fit into the budget, or the runs are made shorter.
_RUNS_WANTED = 20

Progress = Callable[[str, float], None]
"""Gets what is done now, and how many seconds of the budget are left."""


@dataclass
class Trials:
    """The trials of one job.

    Args:
        command: how the user starts it.
        workplace: where it runs.
        minutes: how long all of it may take.
        progress: gets what is done.
    """

    command: Sequence[str]
    workplace: Workplace
    minutes: float
    progress: Progress
    found: Found = field(default_factory=Found)

    def __post_init__(self) -> None:
        self.budget_s = 60 * self.minutes
        self._runner = Runner(self.command, self.workplace)
        self._began = time.monotonic()
        self._usual = SeenRun(0)
        self._window = StepWindow(0, 0, self.left_s(), self.left_s())
        self._treatments: list[Treatment] = []
        self._waited: tuple[str, ...] = ()
        self._memory_limit = math.inf

    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self._began + self.budget_s - time.monotonic()

    def run_s(self) -> float:
        """Seconds that a run takes: its start, the steps to the last one that is measured, and its end."""
        pace = self._usual.pace() or 0.0
        return (self._usual.first_step_s or 0.0) + (self._window.first + self._window.steps) * pace + 1.0

    def run(self, change: RunChange, name: str, *, slow_start: bool = False) -> SeenRun:
        """Makes a run."""
        self.progress(name, self.left_s())
        window = self._window
        if slow_start:
            window = replace(window, start_s=window.start_s + _SLOW_START_S, settles_late=True)
        # What is over when the budget is over can still be judged; a run that hangs may not go on for ever.
        most = max(self.run_s(), self.left_s())
        return self._runner.run(change, replace(window, start_s=min(window.start_s, most)))

    def diagnose(self) -> tuple[Diagnosis, Situation]:
        """Runs the job as it is, watches it, and chooses what to try.

        Raises:
            PerfDoctorError: the job makes no steps, or ends before they are steady.
        """
        watch_s = min(WATCH_S, max(LEAST_WATCH_S, _DIAGNOSIS_PART * self.budget_s))
        self.progress("starting the job", self.left_s())
        with self._runner.live(RunChange()) as live:
            start_s = max(60.0, self.left_s() - watch_s)
            live.wait(_is_settled, time.monotonic() + start_s)
            _require_steps(live, start_s)
            if live.seen.status is not None:
                raise _too_short(live.seen)
            self.progress("watching the job", self.left_s())
            diagnosis = self._watch(live, watch_s)
            seen = live.conclude()
            _require_steps(live, start_s)
        self._memory_limit = diagnosis.job.get("settings", {}).get("memory_limit_bytes", math.inf)
        self._usual = seen
        self._window = self._plan(seen)
        self._usual.first, self._usual.steps = self._window.first, None
        situation = Situation(diagnosis, seen.facts, os.environ, self._waited, own_cores())
        self._treatments = choose(situation)
        return diagnosis, situation

    def search(self, *, dry_run: bool) -> None:
        """Tries the treatments, or only names them; what was found is kept also when it is interrupted."""
        self.found.arms = [Arm((one,), one.change, self.found.controls) for one in self._treatments]
        if dry_run:
            for arm in self.found.arms:
                arm.skip(say("treat.dry_run"))
        else:
            self._stage()
            search(self.found, self)

    def result(self, diagnosis: Diagnosis, situation: Situation, *, interrupted: bool) -> Treated:
        """Everything that there is to report."""
        controls = self.found.controls
        unfinished = say("treat.interrupted") if interrupted else say("treat.no_time", needed=2 * self.run_s())
        best = self.found.best
        aside = {str(fact["path"]) for run in (self._usual, *controls) for fact in run.facts if fact["kind"] == "aside"}
        edits = edits_of(best.treatments, self._usual.facts) if best else ()
        return Treated(
            diagnosis=diagnosis,
            command=self._runner.command,
            control=control_of(controls, self._window.first, self._window.steps) if controls else None,
            trials=in_order([trial_of(arm, situation, unfinished) for arm in self.found.arms]),
            combined=tuple(trial_of(arm, situation, unfinished) for arm in self.found.combined),
            best=replace(trial_of(best, situation, unfinished), edits=edits) if best else None,
            patch=make_patch(edits, self.workplace.source),
            saved_aside=tuple(sorted(aside)),
            spent={
                "seconds": round(time.monotonic() - self._began, 1),
                "budget_s": self.budget_s,
                "runs": self._runner.count,
            },
            interrupted=interrupted,
            by_hand=situation.by_hand(self._treatments),
        )

    def _watch(self, live: LiveRun, watch_s: float) -> Diagnosis:
        from perfdoctor.analysis.from_recording import examine

        with tempfile.TemporaryDirectory(dir=self.workplace.scratch) as folder:
            path = Path(folder, "job.perfdoctor")
            record(Job(live.process.pid), path, watch_s, all_probes())
            with Recording.open(path) as recording:
                waited = pieces(waited_files(recording, live.process.pid))
                diagnosis = examine(recording)
        self._waited = self.workplace.as_of_the_source(waited)
        if diagnosis.job.get("stopped") == "interrupted":
            raise KeyboardInterrupt
        return self.workplace.as_of_the_source(diagnosis)

    def _stage(self) -> None:
        """Copies what the job waits for, before any control runs: all runs find the page cache alike."""
        for arm in self.found.arms:
            if places := arm.change.settings.get("staged"):
                self.progress("copying what the job reads into memory", self.left_s())
                free = min(psutil.virtual_memory().available, self._memory_limit) - self._usual.memory_bytes
                until = time.monotonic() + thresholds.STAGING_PART * self.budget_s
                if why := self.workplace.stage(places, thresholds.STAGED_PART * free, until):
                    lacking = isinstance(why, Message) and why.id == "treat.no_room_to_stage"
                    arm.skip(why, Outcome.NO_MEMORY if lacking else Outcome.FAILED)

    def _plan(self, seen: SeenRun) -> StepWindow:
        """Which steps to measure: after those that are not steady, and for as long as starting takes."""
        times = seen.times()
        first = steady_from(times)
        pace = sum(times[first:]) / len(times[first:])
        start_s = seen.first_step_s or 0.0
        share = self.left_s() / _RUNS_WANTED - start_s - 1.0
        wanted_s = min(max(thresholds.TRIAL_S, start_s), thresholds.LONGEST_TRIAL_S)
        measured_s = min(wanted_s, max(share, thresholds.SHORTEST_TRIAL_S))
        # The first steps of a job that takes long to settle are not waited for in every run.
        first = max(_SETTLED_STEPS, min(first, math.ceil(_LONGEST_WARMUP * measured_s / pace)))
        steps = max(int(thresholds.TRIAL_STEPS), math.ceil(measured_s / pace))
        if seen.status is not None:  # it has no more steps than so
            first = min(first, len(times) // 2)
            steps = min(steps, len(times) - first)
        limit_s = thresholds.MUCH_SLOWER * (first + steps) * pace + measured_s
        return StepWindow(first, steps, 2 * start_s + _START_MARGIN_S, limit_s)


def _is_settled(seen: SeenRun) -> bool:
    times = seen.times()
    return (len(times) >= _SETTLED_STEPS and sum(times) >= _SETTLED_S) or sum(times) > 5 * _SETTLED_S


def _require_steps(live: LiveRun, waited_s: float) -> None:
    """Makes sure that the job trains.

    Raises:
        PerfDoctorError: it has ended, or makes no steps.
    """
    seen = live.conclude()
    kinds = {fact["kind"] for fact in seen.facts}
    if seen.status:
        raise PerfDoctorError(
            f"The job ends with status {seen.status}: {live.last_words().rstrip('.')}.",
            hint="It runs in a copy of its working folder, without a terminal and without input. Does it run there?",
        )
    if "python" not in kinds:
        raise PerfDoctorError(
            "No Python of this job has taken perfdoctor's start hook.",
            hint="Start Python without -I, -E and -S, and let it have PYTHONPATH.",
        )
    if "torch" not in kinds:
        raise PerfDoctorError("The job has not imported PyTorch.", hint="Name what trains: treat -- python train.py")
    if not seen.ends_ns:
        ended = "before it ended" if seen.status is not None else f"within {waited_s:.0f} s"
        raise PerfDoctorError(
            f"The job made no training step {ended}.", hint="A step is a step of a torch optimizer, or else a batch."
        )
    if len(seen.times()) < thresholds.FEWEST_TRIAL_STEPS:
        if seen.status is not None:
            raise _too_short(seen)
        raise PerfDoctorError("The job's steps take too long.", hint="Give it more time: --minutes 60")


def _too_short(seen: SeenRun) -> PerfDoctorError:
    steps = f"{len(seen.ends_ns)} step{'' if len(seen.ends_ns) == 1 else 's'}"
    return PerfDoctorError(f"The job ended after {steps}, before they were steady.", hint="Give it more steps to do.")


def treat(
    command: Sequence[str],
    folder: Path,
    links: Sequence[Path],
    minutes: float,
    progress: Progress,
    *,
    dry_run: bool = False,
) -> Treated:
    """Diagnoses a job and tries what may help.

    Args:
        command: how it is started.
        folder: where.
        links: what in that folder it only reads.
        minutes: how long all of it may take.
        progress: gets what is done.
        dry_run: only say what would be tried.

    Raises:
        PerfDoctorError: it cannot be copied or started, makes no steps, or ends before they are steady.
    """
    workplace = Workplace(folder, links)
    try:
        trials = Trials(command, workplace, minutes, progress)
        diagnosis, situation = trials.diagnose()
        interrupted = False
        try:
            trials.search(dry_run=dry_run)
        except KeyboardInterrupt:
            interrupted = True
        return trials.result(diagnosis, situation, interrupted=interrupted)
    finally:
        with suppress(KeyboardInterrupt):
            workplace.remove()
