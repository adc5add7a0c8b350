"""The sidecar of ``with diagnose():``: watches the job that started it, then says what it saw.

It inherits the ring of marks, watches as `attach` does until the last observed step or the job's end, and makes the
reports. Nothing in the job waits for it, and nothing happens to the job if it dies.

    python -c "…main()" RING RESULT WISHES     (file descriptors, and the user's wishes as JSON)
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfdoctor.capture.follow_up import take_rest
from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import Recorder
from perfdoctor.capture.recording_file import recording_file
from perfdoctor.capture.watch import allow_many_files, examine_file, make_probes, recording_facts, stopped_by_signals
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes.inside.ring import FAILED, REPORTED, RingReader
from perfdoctor.probes.marks import MarksProbe
from perfdoctor.recording.writer import RecordingWriter
from perfdoctor.reports.outputs import console_text, write_outputs

# However many steps the user asked for: what was seen until then suffices for a diagnosis.
MAX_WATCH_S = 600.0
# What a recording of many processes takes at most in the usual time, and where else there may be room for it.
ROOM_BYTES = 64 << 20
ELSEWHERE = ("/dev/shm", "/var/tmp")
LAST_STEP, JOB_ENDED = "last observed step", "job ended"


def main() -> int:
    """Watches and reports.

    Returns:
        0 a diagnosis was made, or is being made by another rank's sidecar; 1 it could not be.
    """
    ring_fd, result_fd, wishes = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    ring = RingReader(ring_fd)
    job = Job(ring.pid)
    turn = _take_turn(job.root_pid)
    if turn is None:
        return 0
    probe = MarksProbe(ring)
    state = FAILED
    try:
        _watch_and_report(job, probe, wishes, result_fd)
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


def _watch_and_report(job: Job, probe: MarksProbe, wishes: dict[str, Any], result_fd: int) -> None:
    tempfile.tempdir = _roomy_folder()
    asked = Path(wishes["recording"]) if wishes["recording"] else None
    if asked is not None and asked.is_file():
        asked.unlink()  # of an earlier run of the same script
    with recording_file(asked) as path:
        _watch(job, probe, path)
        # The job goes on training: from here on it comes first.
        os.nice(10)
        _report(examine_file(path), wishes, path, result_fd)


def _roomy_folder() -> str | None:
    """A folder for what is recorded; None for Python's own choice, if no other has more room."""
    for folder in (None, *ELSEWHERE):
        with suppress(OSError):
            free = os.statvfs(folder or tempfile.gettempdir())
            if os.access(folder or tempfile.gettempdir(), os.W_OK) and free.f_bavail * free.f_frsize >= ROOM_BYTES:
                return folder
    return None


def _watch(job: Job, probe: MarksProbe, path: Path) -> None:
    allow_many_files()
    writer = RecordingWriter(path, recording_facts(job.asked_pid))
    recorder = Recorder(job, [*make_probes(), probe], writer)
    trainer = os.getppid()
    ring = probe.rings[job.asked_pid]

    def on_tick(_: float) -> None:
        if ring.trainer:
            recorder.stop(LAST_STEP)
        elif os.getppid() != trainer:
            recorder.stop(JOB_ENDED)

    try:
        with stopped_by_signals(recorder):
            recorder.run(MAX_WATCH_S, on_tick=on_tick)
        for one in probe.rings.values():
            writer.add(take_rest(one))
        writer.close()
    except (PerfDoctorError, sqlite3.Error) as error:
        # The disk is full, for instance. What was seen until then still makes a report.
        print(f"perfdoctor: {error}", file=sys.stderr)
        writer.abandon()


def _report(diagnosis: Diagnosis, wishes: dict[str, Any], path: Path, result_fd: int) -> None:
    from perfdoctor.reports import json as json_report

    os.pwrite(result_fd, json_report.render(diagnosis).encode(), 0)
    try:
        places = {kind: Path(wishes[kind]) if wishes[kind] else None for kind in ("report", "json")}
        write_outputs(diagnosis, report=places["report"], json=places["json"], recording=path)
    finally:
        print(console_text(diagnosis, sys.stderr), file=sys.stderr, flush=True)
    if places["report"]:
        print(f"perfdoctor: the full report is in {places['report']}", file=sys.stderr, flush=True)
