"""Evidence from a real process that was really watched."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import Recorder
from perfdoctor.metrics.measure import measure
from perfdoctor.metrics.settings import read_settings
from perfdoctor.probes.cpu import CpuProbe
from perfdoctor.probes.io import IoProbe
from perfdoctor.probes.threads import ThreadsProbe
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.writer import RecordingWriter
from perfdoctor.timeline.affinity import Affinity
from perfdoctor.timeline.threads import JobThreads, read_threads

pytestmark = pytest.mark.alone

# Uses a core for about half of the time, and reads 64 kB of a cached file 10 times a second.
CODE = """
import os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
print("ready", flush=True)
while True:
    until = time.thread_time() + 0.05
    while time.thread_time() < until: pass
    os.pread(file, 65536, 0)
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("watched")
    data = folder / "data"
    data.write_bytes(os.urandom(65536))
    path: Path = folder / "recording.pdoc"
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "SERVICE_PASSWORD": "hunter2"}
    with subprocess.Popen(
        [sys.executable, "-c", CODE, str(data)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            writer = RecordingWriter(path, {"start_ns": str(now_ns())})
            Recorder(Job(process.pid), [ThreadsProbe(), CpuProbe(), IoProbe()], writer).run(2.0)
            writer.close()
        finally:
            process.kill()
    opened = Recording.open(path)
    yield opened, process.pid
    opened.close()


def test_numbers_of_a_half_busy_process(recording) -> None:  # type: ignore[no-untyped-def]
    opened, pid = recording
    threads = JobThreads(read_threads(opened))
    numbers = {name: evidence.value for name, evidence in measure(opened, threads, [(pid, ())]).job.items()}
    assert 0.1 < numbers["trainer_running"] < 0.8
    # One comes from the scheduler's account of the thread, the other from the account of the process.
    assert numbers["trainer_cores"] == pytest.approx(numbers["job_cores"], abs=0.15)
    assert numbers["trainer_running"] + numbers["trainer_run_delay"] == pytest.approx(
        numbers["runnable_threads"], abs=0.1
    )
    assert numbers["bytes_per_read"] == pytest.approx(65536, rel=0.1)
    assert numbers["page_cache"] > 0.9
    assert "worker_busy" not in numbers
    assert "gpus" not in numbers


def test_settings_of_a_real_process(recording) -> None:  # type: ignore[no-untyped-def]
    opened, pid = recording
    threads = JobThreads(read_threads(opened))
    settings = read_settings(opened, threads, Affinity(opened.facts, threads), [(pid, ())])
    assert settings["env.OMP_NUM_THREADS"] == "3"
    assert settings["affinity_cores"] == len(os.sched_getaffinity(0))
    assert settings["workers"] == 0
    assert "hunter2" not in str(settings)
