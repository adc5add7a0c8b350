"""The sidecar of ``with diagnose():``: watches the job that started it, then says what it saw.

It inherits the ring of marks, watches as `attach` does until the last observed step or the job's end, and makes the
reports. Nothing in the job waits for it, and nothing happens to the job if it dies.

    python -c "…main()" RING RESULT CHANNEL OPTIONS     (file descriptors, and the user's options as JSON)
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import record
from perfdoctor.capture.recording_file import recording_file
from perfdoctor.diagnosis import NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say
from perfdoctor.probes import all_probes
from perfdoctor.probes.inside.ring import DETACHED, FAILED, REPORTED, TREATABLE, RingReader
from perfdoctor.probes.marks import MarksProbe, marks_of
from perfdoctor.probes.readers.procfs import is_running
from perfdoctor.recording.clock import epoch_on_the_clock
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Profile, Sample, SerialMark, TraceCost, TrialSeen, Unavailable

if TYPE_CHECKING:
    from perfdoctor.diagnosis import Diagnosis
    from perfdoctor.results.treatment import Treated

# However many steps the user asked for: what was seen until then suffices for a diagnosis.
MAX_WATCH_S = 600.0
# What a recording of many processes takes at most in the usual time, and where else there may be room for it.
ROOM_BYTES = 64 << 20
ELSEWHERE = ("/dev/shm", "/var/tmp")
# How a process was traced that asked for it itself.
OURS = "diagnose()"
LAST_STEP, JOB_ENDED = "last observed step", "job ended"
# How long the training process is waited for after its last observed step: profiled steps are several times slower than
# others, and what a large model did takes a while to write.
PATIENCE_S = 60.0
_ASK_EVERY_S = 0.05
# Weighs 36 where an ordinary process weighs 1024 (the kernel's sched_prio_to_weight).
NICENESS = 15
AUTOGROUP = Path("/proc/self/autogroup")
# A trace of a few steps has some MB. Reading one of this size would take the report minutes.
MAX_TRACE_BYTES = 2_000_000_000


def main() -> int:
    """Watches and reports.

    Returns:
        0 a diagnosis was made, or is being made by another rank's sidecar; 1 it could not be.
    """
    ring_fd, result_fd, channel_fd = map(int, sys.argv[1:4])
    options = json.loads(sys.argv[4])
    channel = socket.socket(fileno=channel_fd) if channel_fd >= 0 else None
    ring = RingReader(ring_fd)
    job = Job(ring.pid)
    turn = _take_turn(job.root_pids[0])
    if turn is None:
        return 0
    probe = MarksProbe(ring)
    state = FAILED
    try:
        _watch_and_report(job, probe, options, result_fd, channel)
        state = REPORTED
    except PerfDoctorError as error:
        print(f"perfdoctor: {error}\n  {error.hint}".rstrip(), file=sys.stderr)
    finally:
        for one in probe.rings.values():
            one.tell(state)
        turn.close()
    return int(state != REPORTED)


def _take_turn(root_pid: int) -> socket.socket | None:
    """One sidecar watches a job, also where each of its processes has started one: the first that takes this name.

    The name is in the kernel's abstract space, and free again when the process that took it ends.
    """
    turn = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        turn.bind(f"\0perfdoctor-sidecar-{os.getuid()}-{root_pid}")
    except OSError:
        turn.close()
        return None
    return turn


def _watch_and_report(
    job: Job, probe: MarksProbe, options: dict[str, Any], result_fd: int, channel: socket.socket | None
) -> None:
    from perfdoctor.reports.outputs import require_folders

    tempfile.tempdir = _roomy_folder()
    asked = Path(options["recording"]) if options["recording"] else None
    require_folders(asked)
    with recording_file(asked) as path:
        _record(job, probe, path, source=options["source"])
        # The job goes on training: from here on it comes first.
        step_back()
        _report(path, options, result_fd, channel)


def step_back() -> None:
    """Gives way to whatever else wants the cores, from here on and for good.

    Where the kernel groups processes by session (sched(7), autogroups), niceness counts within a group only, and each
    group has one of its own. The sidecar is in a session of its own: beside a process that computes it got half of a
    core however nice it was, and a few percent with its group's niceness (measured on Linux 6.18). It is not the least
    urgent of all: on a machine with more work than cores, the report would take many minutes.
    """
    os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    with suppress(OSError):
        AUTOGROUP.write_text(str(NICENESS))


def _roomy_folder() -> str | None:
    """A folder for what is recorded; None for Python's own choice, if no other has more room."""
    for folder in (None, *ELSEWHERE):
        with suppress(OSError):
            free = os.statvfs(folder or tempfile.gettempdir())
            if os.access(folder or tempfile.gettempdir(), os.W_OK) and free.f_bavail * free.f_frsize >= ROOM_BYTES:
                return folder
    return None


def _record(job: Job, marks: MarksProbe, path: Path, *, source: bool) -> None:
    trainer = os.getppid()
    ring = marks.rings[job.asked_pid]

    def why_stop(_: float) -> str | None:
        if ring.trainer:
            return LAST_STEP
        return JOB_ENDED if os.getppid() != trainer else None

    def follow_up_runs() -> Iterator[Sample]:
        for one in marks.rings.values():
            yield from _follow_up_runs(one)

    try:
        probes = [*all_probes(), marks]
        record(job, path, MAX_WATCH_S, probes, on_tick=why_stop, afterwards=follow_up_runs, source=source)
    except PerfDoctorError as error:
        if error.recording is None:
            raise
        # The disk is full, for instance. What was seen until then still makes a report.
        print(f"perfdoctor: {error}", file=sys.stderr)


def _follow_up_runs(ring: RingReader) -> Iterator[Sample]:
    """Waits until a training process detaches or waits for orders, and takes what it left.

    Args:
        ring: of that process.

    Yields:
        Its trial, its serialised steps and its trace, if there are such, and why something is left out.
    """
    until = time.monotonic() + PATIENCE_S
    while ring.trainer not in (DETACHED, TREATABLE) and time.monotonic() < until and is_running(ring.pid):
        time.sleep(_ASK_EVERY_S)
    # Other marks of that time are of no use.
    yield from (mark for mark in marks_of(ring) if isinstance(mark, SerialMark))
    for words in ring.texts():
        if words[0] == "trial":
            yield TrialSeen(ring.pid, int(words[1]), int(words[2]))
        elif words[0] == "trace":
            yield from _trace(ring.pid, Path(str(words[1])))
            yield TraceCost(ring.pid, OURS, int(words[2]), 0, int(words[3]))
        elif words[0] == "note":
            yield Unavailable("marks", str(words[1]), str(words[2]))


def _trace(pid: int, file: Path) -> Iterator[Sample]:
    try:
        if file.stat().st_size > MAX_TRACE_BYTES:
            yield Unavailable("profile", "The trace of torch.profiler is larger than 2 GB.", "profile=1")
        else:
            # Level 1 packs a trace nearly as well as level 9, in a tenth of the time.
            yield Profile(pid, *epoch_on_the_clock(), gzip.compress(file.read_bytes(), 1))
        shutil.rmtree(file.parent, ignore_errors=True)
    except OSError as error:
        yield Unavailable("profile", f"The trace of torch.profiler cannot be read: {error.strerror}.", "")


def _report(path: Path, options: dict[str, Any], result_fd: int, channel: socket.socket | None) -> None:
    # Here, not above: the analysis brings numpy, and what only watches does without.
    from perfdoctor.analysis.from_recording import examine
    from perfdoctor.reports import json as json_report
    from perfdoctor.reports.language import choice, language

    before_s = _cpu_s()
    with Recording.open(path) as recording:
        diagnosis = examine(recording)
    with language(*choice(options["lang"], os.environ)):
        _hand_back(json_report.render(diagnosis), result_fd)
        treated: Treated | NotExamined | None = None
        try:
            treated = None if channel is None else _treat(diagnosis, channel, options)
        finally:  # whatever goes wrong with trials, the diagnosis is there
            if isinstance(treated, NotExamined):
                diagnosis, treated = replace(diagnosis, not_examined=(*diagnosis.not_examined, treated)), None
            _deliver(diagnosis, treated, before_s, path, options, result_fd)


def _treat(diagnosis: Diagnosis, channel: socket.socket, options: dict[str, Any]) -> Treated | NotExamined:
    """Tries changes in the training process, and lets it go."""
    from perfdoctor.reports.outline import outline
    from perfdoctor.reports.wording import worded
    from perfdoctor.treat.inside import treat_inside

    def announce(changes: int) -> None:
        headline, minutes = outline(diagnosis).headline, options["treat_minutes"]
        trying = worded(say("treat.between_steps", headline=headline, changes=changes, minutes=minutes))
        print(f"perfdoctor: {trying}", file=sys.stderr, flush=True)

    with channel:
        return treat_inside(diagnosis, channel, options["treat_minutes"], announce, exact=options["treat"] is True)


def _cpu_s() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


def _with_cost(diagnosis: Diagnosis, before_s: float) -> Diagnosis:
    """The diagnosis with what it has cost by now to make it and its reports, besides the watching."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024
    watching = diagnosis.overhead.get("memory_bytes") or 0.0
    cost = {"report_cpu_s": round(_cpu_s() - before_s, 3), "memory_bytes": max(watching, float(peak))}
    return replace(diagnosis, overhead={**diagnosis.overhead, **cost})


def _deliver(
    diagnosis: Diagnosis,
    treated: Treated | None,
    before_s: float,
    path: Path,
    options: dict[str, Any],
    result_fd: int,
) -> None:
    from perfdoctor.reports.outputs import console_text, rendered, write_outputs

    places = {kind: Path(options[kind]) if options[kind] else None for kind in ("report", "json")}
    try:
        so_far = _with_cost(diagnosis, before_s)
        write_outputs(so_far, treated, report=places["report"], json=places["json"], recording=path)
    finally:
        # The page takes most of it, and cannot say what it took itself.
        diagnosis = _with_cost(diagnosis, before_s)
        _hand_back(rendered("json", diagnosis, treated), result_fd)
        print(console_text(diagnosis, sys.stderr, treated), file=sys.stderr, flush=True)
    if places["report"]:
        print(f"perfdoctor: the full report is in {places['report']}", file=sys.stderr, flush=True)


def _hand_back(text: str, result_fd: int) -> None:
    """Puts the diagnosis where the training process finds it once this one has ended."""
    written = os.pwrite(result_fd, text.encode(), 0)
    os.ftruncate(result_fd, written)
