"""The processes of a run: started together, and ended together, whatever they have become."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import psutil

from perfdoctor.capture.recorder import ENDING, signals_deferred, signals_handled
from perfdoctor.errors import PerfDoctorError
from perfdoctor.treat.staging import see

TOKEN = "PERFDOCTOR_TREAT_RUN"
"""Environment variable by which a process of a run is known, even when its parent has gone."""
# How long a job that is asked to end may take for it. What it would lose is in its copy of the working folder.
GRACE_S = 3.0
_ASK_EVERY_S = 0.05
# Linux, prctl(2).
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: BinaryIO,
    errors: BinaryIO,
    copies: Mapping[str, str],
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a job in a session of its own, that ends when perfdoctor does; all of its processes are ended at the exit.

    Args:
        command: how it is started.
        folder: where.
        environment: all of its variables, ``TOKEN`` among them.
        output: what it writes.
        errors: the same of stderr.
        copies: what it sees in place of files and folders.

    Raises:
        PerfDoctorError: there is no such program, or it cannot be run.
    """
    process = None
    try:
        # Whoever is interrupted once it has begun, and does not know it yet, would leave it behind.
        with signals_deferred(*ENDING):
            process = _start(command, folder, environment, output, errors, copies)
        yield process
    finally:
        if process is not None:
            with signals_handled(signal.SIG_IGN, *ENDING):
                _end(process, environment[TOKEN])


def _start(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: BinaryIO,
    errors: BinaryIO,
    copies: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None)

    def begin() -> None:
        if copies:
            see(copies)
        # After that: the kernel forgets it where rights change.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    try:
        return subprocess.Popen(
            list(command),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=begin,
        )
    except OSError as error:
        raise PerfDoctorError(
            f"{shlex.join(command)} cannot be started: {error.strerror}.",
            hint="After -- stands what starts the job: perfdoctor treat -- python train.py",
        ) from None


def _end(process: subprocess.Popen[bytes], token: str) -> None:
    """Ctrl-C to begin with, and by force whatever is left after that."""
    # Whose parent ends from here on becomes our child, so that it can be waited for. While the job runs that would be
    # wrong: a daemon that it has started would count as perfdoctor's own, and so would the cores that it takes.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    family = _family(process, token)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGINT)
    until = time.monotonic() + GRACE_S
    while _alive(process, family) and time.monotonic() < until:
        time.sleep(_ASK_EVERY_S)
    while left := [one for one in family | _family(process, token) if _is_alive(one)]:
        family.update(left)
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        time.sleep(_ASK_EVERY_S)
    _reap(family, process)
    process.wait()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def memory_of(process: subprocess.Popen[bytes]) -> int:
    """Bytes of memory that a job's processes have together: what each has of its own, and the most that one shares."""
    page, own, shared = os.sysconf("SC_PAGE_SIZE"), 0, 0
    with suppress(psutil.Error):
        top = psutil.Process(process.pid)
        for one in (top, *top.children(recursive=True)):
            with suppress(OSError, IndexError):
                _, resident, mapped = Path(f"/proc/{one.pid}/statm").read_text().split()[:3]
                own += int(resident) - int(mapped)
                shared = max(shared, int(mapped))
    return (own + shared) * page


def _family(process: subprocess.Popen[bytes], token: str) -> set[psutil.Process]:
    """The processes of a run: below its first one, and those that have lost their parent."""
    family: set[psutil.Process] = set()
    with suppress(psutil.Error):
        top = psutil.Process(process.pid)
        family |= {top, *top.children(recursive=True)}
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.environ().get(TOKEN) == token:
                family.add(one)
    return family


def _alive(process: subprocess.Popen[bytes], family: set[psutil.Process]) -> bool:
    process.poll()
    _reap([one for one in family if one.pid != process.pid], process)
    return any(map(_is_alive, family))


def _is_alive(one: psutil.Process) -> bool:
    try:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _reap(family: Iterable[psutil.Process], process: subprocess.Popen[bytes]) -> None:
    """Lets those go that have ended and were left to us; the first process is waited for by who started it."""
    for one in family:
        if one.pid != process.pid:
            with suppress(OSError):
                os.waitpid(one.pid, os.WNOHANG)
