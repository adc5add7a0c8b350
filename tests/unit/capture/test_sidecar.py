"""The sidecar of diagnose() gives way to the training before it makes its reports."""

import subprocess
import sys

from perfdoctor.capture.sidecar import AUTOGROUP, NICENESS


def test_gives_way_within_its_session_and_as_a_session() -> None:
    code = (
        "import os; from perfdoctor.capture.sidecar import AUTOGROUP, step_back; step_back();"
        "print(os.nice(0), AUTOGROUP.read_text() if AUTOGROUP.exists() else '')"
    )
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True).stdout.split()
    assert int(told[0]) >= NICENESS
    if AUTOGROUP.exists():  # "/autogroup-25 nice 15"
        assert int(told[-1]) >= NICENESS
