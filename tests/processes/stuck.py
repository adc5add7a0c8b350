"""Jobs that hang in a planted way, or only step slowly, and stay so until they are ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.files import ROOT
from tests.processes.attaching import ENVIRONMENT

JOBS = ROOT / "benchmarks" / "stuck_jobs.py"


@contextmanager
def planted(name: str, ranks: int = 2) -> Iterator[int]:
    """A job that has come to what is planted in its last rank; its launcher's process id."""
    command = [sys.executable, str(JOBS), name, str(ranks)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, env=ENVIRONMENT, **pipes) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline().startswith("ready")
            yield job.pid
        finally:
            os.killpg(job.pid, signal.SIGKILL)
