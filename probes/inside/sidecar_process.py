"""The sidecar as the training process sees it: started beside it, allowed to look at it, and asked for its result."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfdoctor.probes.inside.options import Options
from perfdoctor.probes.inside.ring import anonymous_file
from perfdoctor.probes.inside.same_python import command

PR_SET_PTRACER = 0x59616D61  # linux/prctl.h
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_RESULT = "perfdoctor-result"


class Sidecar:
    """A sidecar, or the reason why there is none.

    Attributes:
        problem: one sentence; "" if all is well.
    """

    def __init__(self, process: subprocess.Popen[bytes] | None = None, result: int = -1, problem: str = "") -> None:
        self.problem = problem
        self._process = process
        self._result = result
        self._diagnosis: dict[str, Any] | None = None

    def allow(self) -> None:
        """Lets the sidecar look at the process that calls this."""
        if self._process is not None:
            allow_tracer(self._process.pid)

    def wait(self, seconds: float) -> None:
        """Waits for the report."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def lost(self) -> str:
        """How a sidecar ended that should not have; "" if it has not."""
        status = None if self._process is None else self._process.poll()
        return "" if status in (None, 0, 1) else f"its sidecar ended with status {status}"

    def diagnosis(self) -> dict[str, Any] | None:
        """The diagnosis as in the JSON report; None until there is one."""
        if self._diagnosis is None and self._process is not None and self._process.poll() is not None:
            text = os.pread(self._result, os.fstat(self._result).st_size, 0)
            self._diagnosis = json.loads(text) if text else None
        return self._diagnosis


def start_sidecar(ring: int, options: Options, channel: int) -> Sidecar:
    """Starts the sidecar that watches this process and the others of its job on this host.

    Among ranks that torchrun started, only the first one on each host has a sidecar; it finds the others' rings.

    Args:
        ring: file of the marks.
        options: what the user asked for.
        channel: the sidecar's end of a socket, closed here when the sidecar has it; -1 for none.
    """
    try:
        return _start(ring, options, channel)
    finally:
        if channel >= 0:
            os.close(channel)


def _start(ring: int, options: Options, channel: int) -> Sidecar:
    if os.environ.get("LOCAL_RANK", "0") != "0":
        # The first rank's sidecar descends from the launcher, as we do.
        allow_tracer(os.getppid())
        return Sidecar()
    if not sys.executable:
        return Sidecar(problem="This Python cannot start another one: sys.executable is empty.")
    result = anonymous_file(_RESULT)
    given = str(ring), str(result), str(channel), json.dumps(asdict(options))
    try:
        process = subprocess.Popen(
            command("perfdoctor.capture.sidecar", *given),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(ring, result) if channel < 0 else (ring, result, channel),
            start_new_session=True,
        )
    except OSError as error:
        os.close(result)
        return Sidecar(problem=f"The sidecar cannot be started: {error.strerror}.")
    sidecar = Sidecar(process, result)
    sidecar.allow()
    return sidecar


def allow_tracer(pid: int) -> None:
    """Where Yama asks for it, allows one process and its descendants to look at this one; 0 takes it back."""
    with suppress(OSError, ValueError):
        if int(_YAMA.read_text()) == 1:
            ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
