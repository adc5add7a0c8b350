"""Dumps of torch's Flight Recorder: those that a job has left, and new ones that it is asked for in torch's ways.

A dump that the job has written is only read. To ask for one makes the job write it, so that is done on request only:
through the rank's named pipe, or through its server for requests, whichever the job was started with.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from perfdoctor.capture.trace_check import environment_of
from perfdoctor.knowledge.flight_recorder import HANDLERS, IN_CACHE, IN_TMP, PIPE, PREFIX, SERVER
from perfdoctor.recording.clock import NS_PER_S, epoch_on_the_clock
from perfdoctor.recording.schema import FlightDump, Sample, Unavailable

_PROBE = "flight recorder"
# Larger ones are left alone: a rank's 2000 calls with their stacks take about 2 MB.
_MOST_BYTES = 64_000_000
# torch looks into the pipe once a second, and then writes.
_PATIENCE_S = 8.0
_ENABLE = (
    "start the job with TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/dump_ (NCCL), or with "
    "TORCH_WORKER_SERVER_SOCKET and torch.distributed.elastic.control_plane.worker_main()"
)


def flight_dumps(processes: Mapping[int, int], *, ask: bool) -> Iterator[Sample]:
    """What the Flight Recorder of a job's ranks holds.

    Args:
        processes: when each that uses torch was started, on the one clock, in ns.
        ask: for new dumps, where the job was started so that it gives them.
    """
    environments = _of_ranks(processes)
    asked_ns = time.time_ns()
    answered: set[int] = set()
    if ask:
        for dump in _from_servers(environments.values()):
            answered.add(dump.rank)
            yield dump
        piped = {int(one["RANK"]) for pid, one in environments.items() if _knock(pid, one)}
        _wait_for(piped, environments, asked_ns)
        answered |= piped
    for dump in _written(environments, processes):
        answered.add(dump.rank)
        yield dump
    if ask and not answered:
        yield Unavailable(_PROBE, "No rank of this job can be asked for a dump of its Flight Recorder.", _ENABLE)


def _of_ranks(processes: Mapping[int, int]) -> dict[int, Mapping[str, str]]:
    """The environment of each rank; what a rank starts inherits it, and is left out."""
    first: dict[str, tuple[int, Mapping[str, str]]] = {}
    for pid in sorted(processes, key=lambda pid: (processes[pid], pid)):
        if found := _environment(pid):
            first.setdefault(found["RANK"], (pid, found))
    return dict(first.values())


def _environment(pid: int) -> Mapping[str, str]:
    """What a rank was started with; nothing if it is gone, may not be looked at, or is no rank by its environment."""
    with suppress(OSError):
        found = environment_of(pid)
        return found if found.get("RANK", "").isdigit() else {}
    return {}


def _written(environments: Mapping[int, Mapping[str, str]], started: Mapping[int, int]) -> Iterator[FlightDump]:
    """Dumps that were written since the job was started, each once."""
    epoch_ns, _ = epoch_on_the_clock()
    read: set[tuple[int, int]] = set()
    for pid, variables in environments.items():
        for path in _places(pid, variables):
            with suppress(OSError):
                found = path.stat()
                written_ns = found.st_mtime_ns
                key = found.st_dev, found.st_ino
                if key in read or found.st_size > _MOST_BYTES or written_ns - epoch_ns < started[pid]:
                    continue
                read.add(key)
                data = zlib.compress(path.read_bytes())
                yield FlightDump(written_ns - epoch_ns, int(variables["RANK"]), written_ns, data)


def _places(pid: int, variables: Mapping[str, str]) -> Iterator[Path]:
    """Where a rank's dump may lie, as this process sees its files."""
    named = next((variables[name] for name in PREFIX if variables.get(name)), None)
    cache = variables.get("XDG_CACHE_HOME") or f"{variables.get('HOME', '/tmp')}/.cache"
    prefixes = [named] if named else [*(f"{cache}/{name}" for name in IN_CACHE), IN_TMP]
    for prefix in prefixes:
        yield _seen_from_here(pid, prefix + variables["RANK"])


def _seen_from_here(pid: int, path: str) -> Path:
    """A file of a process that may run in a container of its own."""
    return Path(f"/proc/{pid}/root{path}") if path.startswith("/") else Path(f"/proc/{pid}/cwd", path)


def _knock(pid: int, variables: Mapping[str, str]) -> bool:
    """Asks a rank for a dump through its named pipe; False if it has none, or nobody reads from it."""
    if not variables.get(PIPE):
        return False
    pipe = _seen_from_here(pid, f"{variables[PIPE]}{variables['RANK']}.pipe")
    try:
        if not stat.S_ISFIFO(pipe.stat().st_mode):
            return False
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return os.write(descriptor, b"1") == 1
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _wait_for(piped: set[int], environments: Mapping[int, Mapping[str, str]], asked_ns: int) -> None:
    """Waits until the ranks that were asked have written their dumps, some seconds at most."""
    waiting = {pid: one for pid, one in environments.items() if int(one["RANK"]) in piped}
    ends = time.monotonic() + _PATIENCE_S
    while waiting and time.monotonic() < ends:
        time.sleep(0.1)
        waiting = {pid: one for pid, one in waiting.items() if not _is_newer(_places(pid, one), asked_ns)}


def _is_newer(places: Iterable[Path], asked_ns: int) -> bool:
    """Whether a file was written since then, and not in the last moment: it may not be whole yet."""
    for path in places:
        with suppress(OSError):
            written_ns = path.stat().st_mtime_ns
            if asked_ns <= written_ns <= time.time_ns() - NS_PER_S // 2:
                return True
    return False


def _from_servers(environments: Iterable[Mapping[str, str]]) -> Iterator[FlightDump]:
    """Dumps of ranks that answer requests; torch answers in threads of its own, whatever the main thread does."""
    epoch_ns, _ = epoch_on_the_clock()
    for variables in environments:
        if not variables.get(SERVER):
            continue
        with suppress(OSError, HTTPException):
            offered = _ask(variables[SERVER], "/handler/", "GET").decode(errors="replace")
            for handler in HANDLERS:
                if handler in re.findall(r"\w+", offered):
                    data = _ask(variables[SERVER], f"/handler/{handler}", "POST")
                    now_ns = time.time_ns()
                    yield FlightDump(now_ns - epoch_ns, int(variables["RANK"]), now_ns, zlib.compress(data))
                    break


class _OverUnixSocket(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str, what: str, method: str) -> bytes:
    """What a rank's server answers.

    Raises:
        OSError, HTTPException: it does not, or refuses.
    """
    connection = _OverUnixSocket(path)
    try:
        connection.request(method, what)
        answer = connection.getresponse()
        data = answer.read(_MOST_BYTES)
    finally:
        connection.close()
    if answer.status != 200:
        raise HTTPException(f"status {answer.status}")
    return data
