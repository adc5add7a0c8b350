"""Recording a job, as `attach` and the sidecar of `diagnose()` both do it: probes, one clock, one file."""

from __future__ import annotations

import os
import platform
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perfdoctor import __version__
from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import Recorder, cut_short
from perfdoctor.probes import Probe
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import Sample
from perfdoctor.recording.writer import RecordingWriter


def record(
    job: Job,
    path: Path,
    duration_s: float,
    probes: Sequence[Probe],
    *,
    on_tick: Callable[[float], str | None] = lambda _: None,
    afterwards: Callable[[], Iterable[Sample]] = tuple,
) -> None:
    """Watches a job for some seconds, or until it ends or a signal comes.

    Args:
        job: whom to watch.
        path: the file to write; it must not exist, or be empty.
        duration_s: how long at most.
        probes: what to look at.
        on_tick: called with the seconds watched so far, about ten times a second; says why to stop, if that.
        afterwards: called when the watching has ended, for what is recorded without a clock.

    Raises:
        PerfDoctorError: the recording cannot be written; its ``recording`` is set where something of it is kept.
    """
    _allow_many_files()
    with RecordingWriter(path, _facts(job.asked_pid)) as writer:
        recorder = Recorder(job, probes, writer)
        with _stopped_by_signals(recorder):
            recorder.run(duration_s, on_tick=on_tick)
        try:
            writer.add(afterwards())
            writer.commit()
        except sqlite3.Error as error:
            raise cut_short(path, error) from None


def _facts(pid: int) -> dict[str, str]:
    """What is known when a recording begins; the clock starts here."""
    return {
        "start_ns": str(now_ns()),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "perfdoctor": __version__,
        "asked_pid": str(pid),
        "host": platform.node(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cores": str(os.cpu_count() or 1),
        "reachable_cores": str(len(os.sched_getaffinity(0))),
    }


def _allow_many_files() -> None:
    """Watching a thread takes three open files, and a soft limit of 1024 is common."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _stopped_by_signals(recorder: Recorder) -> Iterator[None]:
    """Lets Ctrl-C, SIGTERM and a terminal that closes end the watching between two ticks; nothing is left half done.

    A signal that is ignored (``nohup``, a background process of a script) stays so.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda *_: recorder.stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
