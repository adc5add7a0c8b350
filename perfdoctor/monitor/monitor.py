"""The watch for days: counts the job's steps all the time, looks closely in windows, and follows it when it restarts.

While there is a job, a recorder reads counters and counts steps once a second, into one recording after the other. In
between it is asked here, whether a beat has ended, whether a window is due, and what the history says of that.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from perfdoctor.capture.job import Job, find_root
from perfdoctor.capture.recorder import ENDING, record, signals_handled
from perfdoctor.errors import PerfDoctorError
from perfdoctor.monitor.apart import Apart, Attaching
from perfdoctor.monitor.beats import Beats
from perfdoctor.monitor.budget import BUDGET, Budget
from perfdoctor.monitor.detector import Detector
from perfdoctor.monitor.folder import Folder
from perfdoctor.monitor.identity import Identity, Search, ticks_now
from perfdoctor.monitor.trainers import Trainers
from perfdoctor.probes import Probe, Processes
from perfdoctor.probes.cpu import CpuProbe
from perfdoctor.probes.gpu import GpuProbe
from perfdoctor.probes.memory import MemoryProbe
from perfdoctor.probes.readers.procfs import CLOCK_TICKS_PER_S
from perfdoctor.probes.steps import StepsProbe
from perfdoctor.recording.clock import epoch_of, epoch_on_the_clock, now_ns
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CountedCall, Sample, Unavailable
from perfdoctor.results.history import HERE, Appeared, Beat, Incident, Line, Presence

STEPS_EVERY_S = 1.0
READ_EVERY_S = 30.0  # all other numbers: more often would take more than a hundredth of a core
# A recording of all that is counted is closed after so long, or when it has become so large, and the next one begun.
SEGMENT_S = 3600.0
_SEGMENT_BYTES = 16 * 1024 * 1024
# A step that takes so many times an ordinary one, and so many seconds, is looked at while it lasts ...
_STANDS_OUT, _STANDS_OUT_S = 4.0, 2.0
# ... and again whenever it lasts so many times as long as then: what stops moving is not seen in the first seconds.
_LOOKED_AGAIN = 2.0
# A window is begun so long before a long step that is expected, since it takes a moment to look.
_AHEAD_S = 3.0
_POLL_S = 0.1
# Windows that are not those of the interval are so far apart at least.
_AGAIN_AFTER_S = 60.0
# What was started so long before the job was missed may be the job again.
_MARGIN_S = 3


@dataclass(frozen=True)
class Plan:
    """How a job is watched.

    Attributes:
        every_s: from one window to the next, where nothing happens.
        window_s: how long one is.
        beat_s: how long a beat is.
        wait_s: for how long a job that has ended is waited for.
        steps: whether to count steps, for which a page of the job's code is changed meanwhile.
        source: whether recordings hold lines of the job's source.
        cores: what all of it may use of one core.
        language: of the sentences that windows leave in the history.
    """

    every_s: float = 300.0
    window_s: float = 10.0
    beat_s: float = 30.0
    wait_s: float = 900.0
    steps: bool = False
    source: bool = True
    cores: float = BUDGET
    language: str = "en"


class Heard:
    """A probe that is sampled at another period, and whose samples are heard here, too."""

    def __init__(self, probe: Probe, period_s: float, take: Callable[[Sequence[Sample]], None]) -> None:
        self._probe, self._take = probe, take
        self.name, self.period_s, self.check = probe.name, period_s, probe.check

    def open(self, job: Processes) -> Sequence[Sample]:
        """As of the probe."""
        return self._heard(self._probe.open(job))

    def sample(self, now_ns: int) -> Sequence[Sample]:
        """As of the probe."""
        return self._heard(self._probe.sample(now_ns))

    def close(self) -> Sequence[Sample]:
        """As of the probe."""
        return self._heard(self._probe.close())

    def _heard(self, samples: Iterable[Sample]) -> Sequence[Sample]:
        found = list(samples)
        self._take(found)
        return found


class Monitor:
    """Watches one job for as long as it is there, or comes again.

    Args:
        folder: where to keep what is seen; it must be locked.
        plan: how to watch.
        tell: is given what is worth a line on the terminal.
    """

    def __init__(self, folder: Folder, plan: Plan, tell: Callable[[Incident | Presence], None]) -> None:
        self._folder, self._plan, self._tell = folder, plan, tell
        self._detector = Detector()
        self._budget = Budget(plan.cores)
        self._beats = Beats(epoch_on_the_clock()[0], plan.beat_s)
        self._window: Attaching | None = None
        self._reports: deque[Incident] = deque()
        self._report: Apart | None = None
        self._compared: dict[int, tuple[str, ...]] = {}
        self._counts_path = folder.path
        self._next_s = 0.0
        self._looked_s, self._looked_at_ns, self._silent_s = float("-inf"), 0, 0.0
        self._job: Job | None = None
        self._trainers, self._is_there = Trainers(), False
        self._stopped = ""
        self._ended_ticks = 0
        self._unseen: set[str] = set()

    def run(self, pid: int) -> None:
        """Watches until the job has ended and does not come again, or a signal comes.

        Args:
            pid: a process of the job.

        Raises:
            PerfDoctorError: nothing can be written any more.
        """
        self._resume()
        what = Appeared.FOUND
        # While there is a job, its recorder takes them.
        with signals_handled(self._interrupted, *ENDING):
            while True:
                identity = self._watch_one(pid, what)
                if self._stopped or identity is None:
                    break
                again = self._await(identity)
                if again is None:
                    break
                pid, what = again, Appeared.STARTED_AGAIN
        if self._report is not None:
            self._report.end()
        end = Appeared.INTERRUPTED if self._stopped else Appeared.GIVEN_UP
        self._note(Presence(time.time(), end, pid))

    # --- the job ----------------------------------------------------------------------------------------------------

    def _watch_one(self, pid: int, what: Appeared) -> Identity | None:
        """Watches from here to the job's end; returns who it was, None where that could not be read."""
        top = find_root(pid)
        identity = Identity.of(top)
        self._appear(what, top, "" if identity is None else identity.command)
        self._trainers = Trainers()
        self._next_s = time.monotonic() + min(self._plan.every_s, 2 * self._plan.beat_s)
        while True:
            self._job = Job(top)
            self._beats.resume(epoch_on_the_clock()[0])
            self._counts_path = self._folder.next("counts")
            why = record(self._job, self._counts_path, SEGMENT_S, self._probes(), on_tick=self._on_tick)
            if why == "interrupted":
                self._stopped = why
            if why in ("job ended", "interrupted"):
                break
        self._ended_ticks = ticks_now()  # a window may take its time to end
        if self._stopped:
            self._note(self._beats.end(now_ns()))
        elif self._is_there:
            self._appear(Appeared.ENDED, top)
        self._end_window()
        return identity

    def _appear(self, what: Appeared, pid: int, command: str = "") -> None:
        """Notes that the trainer is there, or is gone, with which its beats end."""
        self._is_there = what in HERE
        if not self._is_there:
            self._note(self._beats.end(now_ns()))
            self._beats = Beats(epoch_on_the_clock()[0], self._plan.beat_s, since_ns=now_ns())
        self._note(Presence(time.time(), what, pid, command))

    def _probes(self) -> list[Probe]:
        counted = [Heard(StepsProbe(), STEPS_EVERY_S, self._hear)] if self._plan.steps else []
        read = [Heard(probe, READ_EVERY_S, self._hear) for probe in (CpuProbe(), MemoryProbe(), GpuProbe())]
        return [*counted, *read]

    def _hear(self, samples: Sequence[Sample]) -> None:
        self._beats.take(samples)
        for sample in samples:
            if (
                isinstance(sample, Unavailable)
                and sample.probe == StepsProbe.name
                and sample.reason not in self._unseen
            ):
                self._unseen.add(sample.reason)
                self._note(Presence(time.time(), Appeared.UNSEEN, text=sample.reason))

    def _await(self, identity: Identity) -> int | None:
        """Waits for the job to come again; returns its process, None if it does not."""
        search = Search(identity, self._ended_ticks - _MARGIN_S * CLOCK_TICKS_PER_S)
        until_s = time.monotonic() + self._plan.wait_s
        while not self._stopped:
            self._compare()
            if (pid := search.find()) is not None:
                return pid
            if time.monotonic() >= until_s and self._report is None:  # one that was begun is brought to its end
                break
            time.sleep(STEPS_EVERY_S)
        return None

    def _interrupted(self, *_: object) -> None:
        self._stopped = "interrupted"

    # --- about once a second ----------------------------------------------------------------------------------------

    def _on_tick(self, watched_s: float) -> str | None:
        now = now_ns()
        assert self._job is not None
        if not self._job.ended():  # else its probes still have its last second
            pids, forked = self._job.torch_pids(), self._job.forked_pids()
            if (change := self._trainers.follow(pids, forked, self._beats.steps.pid)) is not None:
                self._appear(*change)
        if (beat := self._beats.next(now)) is not None:
            self._note(beat)
        if self._window is not None and (window := self._window.take()) is not None:
            self._window = None
            self._budget.costs(window.cost_s)
            self._note(window)
            self._folder.tidy(self._shown(), (self._counts_path,))
        self._compare()
        if self._window is None and (why := self._due(now)):
            self._begin_window(why)
        if self._stopped:
            return "interrupted"
        return "segment" if self._counts_path.stat().st_size > _SEGMENT_BYTES else None

    def _due(self, now: int) -> str:
        """Why a window is due now; "" where none is, or none can be afforded."""
        why = self._cause_to_watch(now)
        if not why:
            return ""
        return why if self._budget.allows(urgent=why != "interval") else ""

    def _cause_to_watch(self, now: int) -> str:
        now_s = time.monotonic()
        steps = self._beats.steps
        if now_s - self._looked_s > _AGAIN_AFTER_S:
            seen_s = self._silent_s if self._looked_at_ns == steps.ended_ns else 0.0
            usual_s, silent_s = steps.usual_s, steps.silent_s(now)
            if usual_s and silent_s > max(_STANDS_OUT_S, _STANDS_OUT * usual_s, _LOOKED_AGAIN * seen_s):
                return "long step"
            if self._detector.is_slower:
                return "slower"
            if self._detector.expected_long_step(time.time(), _AHEAD_S):
                return "expected"
        return "interval" if now_s >= self._next_s else ""

    def _begin_window(self, why: str) -> None:
        assert self._job is not None
        if why != "interval":
            self._looked_s, self._looked_at_ns = time.monotonic(), self._beats.steps.ended_ns
            self._silent_s = self._beats.steps.silent_s(now_ns())
        self._next_s = time.monotonic() + self._plan.every_s
        steps, no_source = ["--steps"] * self._plan.steps, ["--no-source"] * (not self._plan.source)
        options = ("--lang", self._plan.language, *steps, *no_source)
        path = self._folder.next("window")
        self._window = Attaching(self._job.root_pids[0], path, self._plan.window_s, why, options)

    def _end_window(self) -> None:
        """Waits for a window that is still open when the job has ended, which ends it, too."""
        if self._window is not None and self._stopped:
            self._window.stop()
        while self._window is not None:
            if (window := self._window.take()) is not None:
                self._window = None
                self._note(window)
            time.sleep(_POLL_S)

    def _compare(self) -> None:
        """Has the recordings of what happened compared, one pair after the other."""
        if self._report is not None and self._report.cost_s() is not None:
            self._report.said()
            self._report = None
        if self._report is None and self._window is None and self._reports and self._budget.allows(urgent=True):
            incident = self._reports.popleft()
            recordings = [str(self._folder.path / name) for name in incident.recordings]
            report = self._folder.report_of(incident)
            self._report = Apart(["compare", *recordings, "--report", str(report), "--force"])

    # --- the history ------------------------------------------------------------------------------------------------

    def _note(self, line: Line) -> None:
        """Keeps a line, and what it shows."""
        for one in (line, *self._detector.take(line)):
            try:
                self._folder.history.add(one)
            except OSError as error:
                raise PerfDoctorError(
                    f"The history {self._folder.history.path} cannot be written any more: {error.strerror}.",
                    hint="Free some space, and watch into the same folder again: it goes on where it was.",
                ) from None
            if isinstance(one, Incident | Presence):
                self._tell(one)
            if isinstance(one, Incident) and len(one.recordings) == 2:
                if self._compared.get(one.number) != one.recordings:
                    self._reports.append(one)
                self._compared[one.number] = one.recordings

    def _shown(self) -> set[str]:
        return {name for incident in self._detector.incidents.values() for name in incident.recordings}

    def _resume(self) -> None:
        """Reads what an earlier perfdoctor has kept, and what it had counted when it was killed."""
        last = 0.0
        for line in self._folder.history.lines():
            self._detector.take(line)
            last = line.ended if isinstance(line, Beat) else line.at if isinstance(line, Presence) else last
        if (path := self._folder.counts()) is None or not last:
            return
        try:
            with Recording.open(path) as recording:
                beats = Beats(epoch_of(recording.meta), self._plan.beat_s)
                calls = [call for call in recording.rows(CountedCall) if beats.date(call.time_ns) > last]
                if calls:
                    beats.next(calls[0].time_ns)
                    beats.take(calls)
                    self._note(beats.end(calls[-1].time_ns))
        except (PerfDoctorError, KeyError, ValueError):
            return  # nothing of it can be read any more
