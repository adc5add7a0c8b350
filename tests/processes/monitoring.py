"""For the tests of monitor: a watch for days whose beats and windows are short, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from perfdoctor.monitor.history import History
from perfdoctor.results.history import Line
from tests.files import TARGETS
from tests.processes.attaching import ENVIRONMENT

PACED = (sys.executable, str(TARGETS / "job_paced.py"))

SCRIPT = """
import sys
from pathlib import Path
from perfdoctor.commands.monitor import tell
from perfdoctor.monitor.folder import Folder
from perfdoctor.monitor.monitor import Monitor, Plan
pid, into, options = int(sys.argv[1]), Path(sys.argv[2]), eval(sys.argv[3])
folder = Folder(into, 100_000_000)
with folder.locked():
    Monitor(folder, Plan(**options), tell).run(pid)
"""
# A beat of 2 s and a window of 4 s: what takes minutes otherwise takes seconds; what it costs is not looked at.
QUICK = {"beat_s": 2.0, "window_s": 4.0, "every_s": 10.0, "wait_s": 60.0, "steps": True, "cores": 100.0}

L = TypeVar("L", bound=Line)


@contextmanager
def monitoring(pid: int, into: Path, **options: object) -> Iterator["subprocess.Popen[str]"]:
    """A watch for days of a job, ended in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(pid), str(into), repr({**QUICK, **options})],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def kept(into: Path, kind: type[L]) -> list[L]:
    """Lines of a history that is being written."""
    return [line for line in History(into).lines() if isinstance(line, kind)]
