"""Lets a running Python 3.14 run a file: ``sys.remote_exec`` (PEP 768).

It takes an interpreter of the same minor version to ask for it, and the job's own is one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.process import python_of

OLDEST = (3, 14)
# Both switch it off (docs.python.org/3/howto/remote_debugging.html).
_SWITCH, _OPTION = "PYTHON_DISABLE_REMOTE_DEBUG", "disable-remote-debug"
_ASK = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
PATIENCE_S = 20.0


class AskingError(Exception):
    """The file is not going to be run. The message is one sentence."""


def refusal(pid: int, environment: Mapping[str, str]) -> Refusal | None:
    """Why a Python process cannot be asked; None if it can.

    Args:
        pid: the process.
        environment: it was started with.

    Raises:
        OSError: it is gone, or may not be looked at.
    """
    python = python_of(pid)
    if python is None or python.version is None or python.version < OLDEST:
        return Refusal(f"sys.remote_exec came with Python 3.14; process {pid} runs {python}.", "")
    options = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    if environment.get(_SWITCH) or any(_OPTION in option for option in options):
        return Refusal(f"Process {pid} was started without remote debugging.", f"unset {_SWITCH}")
    return None


def run_file(pid: int, file: str) -> float:
    """Lets the main thread of a process run a file of Python code when it next runs any.

    Args:
        pid: the process.
        file: as the process sees it.

    Returns:
        Seconds for which the process stood still: none.

    Raises:
        AskingError: it will not; the process goes on as before.
        OSError: it is gone.
    """
    said = ""
    for interpreter in _interpreters(pid):
        try:
            subprocess.run(
                [interpreter, "-I", "-S", "-c", _ASK, str(pid), file],
                capture_output=True,
                text=True,
                check=True,
                timeout=PATIENCE_S,
                stdin=subprocess.DEVNULL,
            )
            return 0.0
        except subprocess.CalledProcessError as error:
            said = said or error.stderr.strip().rpartition("\n")[2]
        except (OSError, subprocess.TimeoutExpired) as error:
            said = said or str(error)
    raise AskingError(f"sys.remote_exec failed: {said.rstrip('.')}.")


def _interpreters(pid: int) -> list[str]:
    """Interpreters of the same version: our own, if it is one, and the process's."""
    python = python_of(pid)
    ours = [sys.executable] if python is not None and python.version == sys.version_info[:2] else []
    return [*ours, f"/proc/{pid}/root{os.readlink(f'/proc/{pid}/exe')}"]
