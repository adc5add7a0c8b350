"""Makes a call in a process of its own: it holds up no other call, prints nothing where the protocol is, can be ended
at any time, and gives its memory back.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import anyio
from anyio.abc import Process

from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes.inside.same_python import command

T = TypeVar("T")

# Calls that are made at the same time; others wait for their turn, so that agents do not take the job's cores.
AT_ONCE = 4
# How long a process has to end: one that watches lets go of the job first, and asks py-spy to end.
PATIENCE_S = 5.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


async def call_apart(turns: anyio.CapacityLimiter, function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function in a process of its own, which is ended when the call is cancelled.

    Args:
        turns: how many may be called at the same time.
        function: one of a module, with arguments and a result that can be pickled.
        arguments: its arguments.

    Raises:
        PerfDoctorError: as the function does; or its process was killed.
    """
    async with turns:
        # A session of its own: Ctrl-C in a terminal is for the server, which then ends the process itself.
        process = await anyio.open_process(
            command("perfdoctor.commands.mcp.apart"), stderr=None, start_new_session=True
        )
        try:
            answer = await _exchange(process, pickle.dumps((function, arguments)))
            with anyio.move_on_after(PATIENCE_S):
                await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
    if not answer:
        raise PerfDoctorError(
            f"The process that was to answer has ended with status {process.returncode}.",
            hint="Where that is -9 memory has run out: give it fewer files, or smaller ones.",
        )
    result = pickle.loads(answer)
    if isinstance(result, PerfDoctorError):
        raise result
    return cast(T, result)


async def _exchange(process: Process, call: bytes) -> bytes:
    """Sends a call; returns what comes back until the process closes its end, nothing if it fails before."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdin.send(call)
        await process.stdin.aclose()
    except anyio.BrokenResourceError:
        return b""
    return b"".join([piece async for piece in process.stdout])


async def _end(process: Process) -> None:
    """Ends a process if it has not."""
    for end in (process.terminate, process.kill):
        if process.returncode is None:
            end()
            with anyio.move_on_after(PATIENCE_S):
                await process.wait()
    await process.aclose()


def main() -> int:
    """Answers one call: reads it from standard input, and writes to what was standard output.

    Returns:
        The exit status, 0.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # nobody waits for it without the server
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever libraries print
    function, arguments = pickle.load(sys.stdin.buffer)
    try:
        answer = function(*arguments)
    except PerfDoctorError as error:
        answer = error
    with suppress(BrokenPipeError), os.fdopen(answers, "wb") as file:  # the server was killed
        pickle.dump(answer, file)
    return 0
