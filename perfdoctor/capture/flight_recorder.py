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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

from perfdoctor.capture.variables import Variables
from perfdoctor.knowledge.flight_recorder import HANDLERS, IN_CACHE, IN_TMP, PIPE, PREFIX, SERVER
from perfdoctor.knowledge.launchers import LAUNCHERS, Launcher, number_of
from perfdoctor.probes.readers.file_view import FileView
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


class _LocalRank(NamedTuple):
    """A rank of the job's on this host.

    Attributes:
        number: as its launcher set it, or its script.
        variables: its environment, as it is now.
    """

    pid: int
    number: int
    variables: Mapping[str, str]


def flight_dumps(processes: Mapping[int, int], *, ask: bool) -> Iterator[Sample]:
    """What the Flight Recorder of a job's ranks holds.

    Args:
        processes: when each that uses torch was started, on the one clock, in ns.
        ask: for new dumps, where the job was started so that it gives them.
    """
    ranks = _ranks(processes)
    asked_ns = time.time_ns()
    answered: set[int] = set()
    if ask:
        for dump in _from_servers(ranks):
            answered.add(dump.rank)
            yield dump
        piped = [rank for rank in ranks if _knock(rank)]
        _wait_for(piped, asked_ns)
        answered |= {rank.number for rank in piped}
    for dump in _written(ranks, processes):
        answered.add(dump.rank)
        yield dump
    if ask and not answered:
        yield Unavailable(_PROBE, "No rank of this job can be asked for a dump of its Flight Recorder.", _ENABLE)


def _ranks(processes: Mapping[int, int]) -> list[_LocalRank]:
    """The ranks among processes; what a rank starts inherits its number, and is left out.

    So is what only an outer launcher has numbered: srun's number of a task is not that of a rank that torchrun starts.
    """
    numbered: dict[Launcher, dict[int, _LocalRank]] = {}
    reader = Variables()
    for pid in sorted(processes, key=lambda pid: (processes[pid], pid)):
        variables = reader.of(pid) or {}
        if (number := number_of(variables)) is not None and number.rank is not None:
            numbered.setdefault(number.launcher, {}).setdefault(number.rank, _LocalRank(pid, number.rank, variables))
    return list(numbered[min(numbered, key=LAUNCHERS.index)].values()) if numbered else []


def _written(ranks: Iterable[_LocalRank], started: Mapping[int, int]) -> Iterator[FlightDump]:
    """Dumps that were written since the job was started."""
    epoch_ns, _ = epoch_on_the_clock()
    for rank in ranks:
        with suppress(OSError), closing(FileView(rank.pid)) as files:
            for path in _places(rank):
                with suppress(OSError):
                    content, written_ns = files.read(path, _MOST_BYTES)
                    if written_ns - epoch_ns >= started[rank.pid]:
                        yield FlightDump(written_ns - epoch_ns, rank.number, written_ns, zlib.compress(content))


def _places(rank: _LocalRank) -> Iterator[str]:
    """Where a rank's dump may lie, as it names the files itself."""
    variables = rank.variables
    named = next((variables[name] for name in PREFIX if variables.get(name)), None)
    cache = variables.get("XDG_CACHE_HOME") or f"{variables.get('HOME', '/tmp')}/.cache"
    prefixes = [named] if named else [*(f"{cache}/{name}" for name in IN_CACHE), IN_TMP]
    for prefix in prefixes:
        yield f"{prefix}{rank.number}"


def _seen_from_here(pid: int, path: str) -> Path:
    """A file of a process that may run in a container of its own."""
    return Path(f"/proc/{pid}/root{path}") if path.startswith("/") else Path(f"/proc/{pid}/cwd", path)


def _knock(rank: _LocalRank) -> bool:
    """Asks a rank for a dump through its named pipe; False if it has none, or nobody reads from it."""
    if not rank.variables.get(PIPE):
        return False
    pipe = _seen_from_here(rank.pid, f"{rank.variables[PIPE]}{rank.number}.pipe")
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


def _wait_for(waiting: Sequence[_LocalRank], asked_ns: int) -> None:
    """Waits until the ranks that were asked have written their dumps, some seconds at most."""
    ends = time.monotonic() + _PATIENCE_S
    while waiting and time.monotonic() < ends:
        time.sleep(0.1)
        waiting = [rank for rank in waiting if not _is_newer(rank, asked_ns)]


def _is_newer(rank: _LocalRank, asked_ns: int) -> bool:
    """Whether a dump was written since then, and not in the last moment: it may not be whole yet."""
    for path in _places(rank):
        with suppress(OSError):
            written_ns = _seen_from_here(rank.pid, path).stat().st_mtime_ns
            if asked_ns <= written_ns <= time.time_ns() - NS_PER_S // 2:
                return True
    return False


def _from_servers(ranks: Iterable[_LocalRank]) -> Iterator[FlightDump]:
    """Dumps of ranks that answer requests; torch answers in threads of its own, whatever the main thread does.

    All are asked at once: one that does not answer holds up no other.
    """
    serving = [rank for rank in ranks if rank.variables.get(SERVER)]
    if serving:
        ends = time.monotonic() + _PATIENCE_S
        with ThreadPoolExecutor(len(serving)) as pool:
            yield from filter(None, pool.map(lambda rank: _from_server(rank, ends), serving))


def _from_server(rank: _LocalRank, ends: float) -> FlightDump | None:
    """The dump of a rank that answers requests until an instant of ``time.monotonic``."""
    server = str(_seen_from_here(rank.pid, rank.variables[SERVER]))
    with suppress(OSError, HTTPException):
        offered = re.findall(r"\w+", _ask(server, "/handler/", "GET", ends).decode(errors="replace"))
        handler = next((one for one in HANDLERS if one in offered), None)
        if handler is not None:
            data = _ask(server, f"/handler/{handler}", "POST", ends)
            epoch_ns, _ = epoch_on_the_clock()
            now_ns = time.time_ns()
            return FlightDump(now_ns - epoch_ns, rank.number, now_ns, zlib.compress(data))
    return None


class _OverUnixSocket(HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str, what: str, method: str, ends: float) -> bytes:
    """What a rank's server answers.

    Raises:
        OSError, HTTPException: it does not, or refuses.
    """
    left_s = ends - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection = _OverUnixSocket(path, left_s)
    try:
        connection.request(method, what)
        answer = connection.getresponse()
        data = answer.read(_MOST_BYTES)
    finally:
        connection.close()
    if answer.status != 200:
        raise HTTPException(f"status {answer.status}")
    return data
