"""The processes of a run, started and ended."""

import os
import uuid
from pathlib import Path

import psutil
import pytest

from perfdoctor.treat import processes

# It interrupts whoever starts it, as soon as it is there.
INTERRUPTS = "kill -INT $PPID; exec sleep 60"


def left(token: str) -> list[int]:
    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get(processes.TOKEN) == token and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one.pid)
        except psutil.Error:
            continue
    return found


def test_who_is_interrupted_while_a_job_starts_leaves_none(tmp_path: Path) -> None:
    token = uuid.uuid4().hex
    environment = {**os.environ, processes.TOKEN: token}
    with (tmp_path / "out").open("wb") as out:
        for _ in range(10):
            with (
                pytest.raises(KeyboardInterrupt),
                processes.running(["sh", "-c", INTERRUPTS], tmp_path, environment, out, out, {}) as process,
            ):
                process.wait(10)
            assert not left(token)
