"""Recording a job, as `attach` and the sidecar of `diagnose()` both do it: probes, one clock, one file.

What perfdoctor itself may use of the CPU is governed: it samples less often, and less, where a sample costs more.
"""

from __future__ import annotations

import os
import platform
import random
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perfdoctor import __version__
from perfdoctor.capture.cpu_budget import Governor, Used, used_so_far
from perfdoctor.capture.job import Job
from perfdoctor.capture.own_source.reader import SourceReader
from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes import LeavesFiles, Probe, Thinnable
from perfdoctor.recording.clock import NS_PER_S, epoch_on_the_clock, now_ns, seconds
from perfdoctor.recording.schema import Event, Reading, Sample
from perfdoctor.recording.writer import RecordingWriter

# As much as a kill -9 of perfdoctor may lose.
COMMIT_NS = NS_PER_S // 2
# How often new processes are looked for: a loader worker that computes one batch lives longer than this.
REFRESH_NS = NS_PER_S // 30
# Probes that are due this soon, or within this part of their period, are sampled in the same wake-up: waking up costs
# more than most samples do (measured: 0.2 ms).
TOGETHER_NS = NS_PER_S // 125
TOGETHER_PART = 8
# Ticks are spread by this fraction of the period, so that a job whose steps take as long as a period is not always
# caught at the same place. Computed for steps of 13 ms to 1 s, sampled for 15 s every 50 ms: a share of 0.4 is known to
# 0.04 at worst; with a spread of 0.4 to 0.07, with none to 0.41.
JITTER = 1.0
_COST_NS = NS_PER_S
# Ctrl-C, whoever ends the command, and a terminal that closes.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Recorder:
    """Watches one job until it is to stop.

    Args:
        job: the processes to watch.
        probes: what to look at.
        writer: where to write.
        apart: children of this process whose CPU time has a budget of its own.
        source: reads lines of the job's source; None to leave them out.
    """

    def __init__(
        self,
        job: Job,
        probes: Sequence[Probe],
        writer: RecordingWriter,
        apart: frozenset[int] = frozenset(),
        source: SourceReader | None = None,
    ) -> None:
        self.job, self._apart, self._source = job, apart, source
        self.probes = list(probes)
        self.writer = writer
        for probe in self.probes:
            if isinstance(probe, LeavesFiles):
                probe.recording = writer.path
        self._thinnable = [probe for probe in self.probes if isinstance(probe, Thinnable)]
        self._open: list[Probe] = []
        self._due_ns: dict[str, int] = {}
        self._spread = 1.0
        self._refreshed_ns = 0
        self._ticks = 0
        self._late = 0
        self._committed_ns = 0
        self._cost_ns = 0
        self._governor = Governor(1 / min((probe.period_s for probe in self.probes), default=1.0))
        self._stopped = ""

    def stop(self, why: str = "interrupted") -> None:
        """Ends the watching at the next tick; may be called from a signal handler."""
        self._stopped = why

    def run(self, duration_s: float, *, on_tick: Callable[[float], str | None] = lambda _: None) -> str:
        """Watches for some seconds, or until the job ends, or ``stop`` is called.

        Args:
            duration_s: how long at most.
            on_tick: called with the seconds watched so far, about ten times a second; says why to stop, if that.

        Returns:
            Why it stopped: ``duration``, ``job ended``, ``interrupted``, or what ``on_tick`` said.

        Raises:
            PerfDoctorError: the recording cannot be written any more; what was committed is kept.
        """
        try:
            self._watch(duration_s, on_tick)
            self._conclude()
        except sqlite3.Error as error:
            raise cut_short(self.writer.path, error) from None
        finally:
            self._release()
        return self._stopped

    def _watch(self, duration_s: float, on_tick: Callable[[float], str | None]) -> None:
        start_ns = now_ns()
        end_ns = start_ns + int(duration_s * NS_PER_S)
        self._governor.begin(start_ns, self._used())
        self._keep(_own_cost(start_ns))
        self._keep(self.job.refresh(start_ns))
        ticked_ns = 0
        for probe in self.probes:
            self._due_ns[probe.name] = now_ns()
            self._open.append(probe)
            self._keep(probe.open(self.job))
        while not self._stopped:
            now = now_ns()
            if now - self._refreshed_ns >= REFRESH_NS * self._governor.stretch:
                self._refreshed_ns = now
                self._keep(self.job.refresh(now))
            if self.job.ended():
                self.stop("job ended")
            elif now >= end_ns:
                self.stop("duration")
            else:
                self._tick(now)
                self._sleep(end_ns)
            if now - ticked_ns >= NS_PER_S // 10:
                ticked_ns = now
                self._stopped = on_tick(seconds(now - start_ns)) or self._stopped

    def _tick(self, now: int) -> None:
        for probe in self.probes:
            due = self._due_ns[probe.name]
            period = int(self._governor.period_s(probe.period_s) * NS_PER_S)
            if now + max(TOGETHER_NS, period // TOGETHER_PART) < due:
                continue
            self._ticks += 1
            self._late += now - due > period
            self._keep(probe.sample(now_ns()))
            self._due_ns[probe.name] = max(due, now - period) + int(period * self._spread)
        self._spread = 1 + JITTER * (random.random() - 0.5)
        self._governor.govern(now, self._used)
        for thinnable in self._thinnable:
            thinnable.share = self._governor.share
        if now - self._cost_ns >= _COST_NS:
            self._cost_ns = now
            self._keep(_own_cost(now))
        if now - self._committed_ns >= COMMIT_NS:
            self._committed_ns = now
            self.writer.commit()
            if self._source is not None:
                self._source.follow(self.job)

    def _used(self) -> Used:
        return used_so_far(but=self._apart.union(self.job.pids()))

    def _sleep(self, end_ns: int) -> None:
        # Where all probes are slow the job's end and Ctrl-C are still noticed within a second.
        due = min([end_ns, now_ns() + NS_PER_S, *self._due_ns.values()])
        time.sleep(max(0.0005, seconds(due - now_ns())))

    def _conclude(self) -> None:
        """Keeps what the probes still have, and what the watching cost; the last probe's close is analysis by then."""
        while self._open:
            self._keep(_own_cost(now_ns()))
            self._keep(self._open.pop().close())
        now = now_ns()
        self._keep([Reading(now, "recorder", "perfdoctor", "ticks_total", self._ticks)])
        self._keep([Reading(now, "recorder", "perfdoctor", "late_ticks_total", self._late)])
        self._keep(self._governor.report(now))
        self._keep([Event(now, "stopped", self._stopped)])
        self.writer.commit()
        if self._source is not None:
            self._keep(self._source.read(self.writer.path))
            self.writer.commit()

    def _release(self) -> None:
        """Lets go of the job; what the probes still have is lost only where the recording has failed."""
        while self._open:
            for _ in self._open.pop().close():
                pass
        if self._source is not None:
            self._source.close()
        self.job.close()

    def _keep(self, samples: Iterable[Sample]) -> None:
        self.writer.add(samples)


def cut_short(path: Path, error: sqlite3.Error) -> PerfDoctorError:
    """What it means to the user that a recording cannot be written any more."""
    return PerfDoctorError(
        f"The recording {path} cannot be written any more: {error}.",
        hint=f"Free some space; what was seen so far is kept: perfdoctor report {path}",
        recording=path,
    )


def _own_cost(now: int) -> Iterable[Sample]:
    """CPU time and memory of perfdoctor itself and of the helpers that it has waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    helpers = resource.getrusage(resource.RUSAGE_CHILDREN)
    yield Reading(now, "recorder", "perfdoctor", "own_cpu_seconds_total", own.ru_utime + own.ru_stime)
    yield Reading(now, "recorder", "perfdoctor", "helpers_cpu_seconds_total", helpers.ru_utime + helpers.ru_stime)
    yield Reading(now, "recorder", "perfdoctor", "memory_peak_bytes", (own.ru_maxrss + helpers.ru_maxrss) * 1024)


def record(
    job: Job,
    path: Path,
    duration_s: float,
    probes: Sequence[Probe],
    *,
    on_tick: Callable[[float], str | None] = lambda _: None,
    afterwards: Callable[[], Iterable[Sample]] = tuple,
    apart: frozenset[int] = frozenset(),
    source: bool = False,
) -> str:
    """Watches a job for some seconds, or until it ends or a signal comes.

    Args:
        job: whom to watch.
        path: the file to write; it must not exist, or be empty.
        duration_s: how long at most.
        probes: what to look at.
        on_tick: called with the seconds watched so far, about ten times a second; says why to stop, if that.
        afterwards: called when the watching has ended, for what is recorded without a clock.
        apart: children of this process whose CPU time has a budget of its own.
        source: whether to read the source around the lines that cost most.

    Returns:
        Why it stopped, as ``Recorder.run`` does.

    Raises:
        PerfDoctorError: the recording cannot be written; its ``recording`` is set where something of it is kept.
    """
    _allow_many_files()
    with RecordingWriter(path, _facts(job.asked_pid)) as writer:
        recorder = Recorder(job, probes, writer, apart, SourceReader() if source else None)
        # They end the watching between two ticks; nothing is left half done.
        with signals_handled(lambda *_: recorder.stop(), *ENDING):
            why = recorder.run(duration_s, on_tick=on_tick)
        try:
            writer.add(afterwards())
            writer.commit()
        except sqlite3.Error as error:
            raise cut_short(path, error) from None
    return why


def _facts(pid: int) -> dict[str, str]:
    """What is known when a recording begins; the clock starts here."""
    return {
        "start_ns": str(now_ns()),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "perfdoctor": __version__,
        "asked_pid": str(pid),
        "host": platform.node(),
        **_clock(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cores": str(os.cpu_count() or 1),
        "reachable_cores": str(len(os.sched_getaffinity(0))),
    }


def _clock() -> dict[str, str]:
    """Which clock this is, and how it stands to the time since 1970: recordings of several hosts are put on one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        boot = namespace = ""  # one that is not known to be another's
    epoch_ns, error_ns = epoch_on_the_clock()
    clock = f"{boot} {namespace}" if boot else ""
    return {"clock": clock, "epoch_ns": str(epoch_ns), "epoch_error_ns": str(error_ns)}


def _allow_many_files() -> None:
    """Watching a thread takes three open files, and a soft limit of 1024 is common."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def signals_handled(handler: Callable[..., object] | signal.Handlers, *numbers: signal.Signals) -> Iterator[None]:
    """Handles some signals in a way of its own; one that is ignored (``nohup``, a script's background) stays so."""
    before = {number: signal.getsignal(number) for number in numbers}
    before = {number: known for number, known in before.items() if known is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


@contextmanager
def signals_deferred(*numbers: signal.Signals) -> Iterator[None]:
    """Handles signals that come meanwhile when it is over."""
    came: list[int] = []
    try:
        with signals_handled(lambda number, _: came.append(number), *numbers):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets SIGTERM and a terminal that closes end what is done as Ctrl-C does, so that nothing is left behind."""
    with signals_handled(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP):
        yield
