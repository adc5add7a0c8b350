"""Asks Kineto for a trace, where the job was started with KINETO_USE_DAEMON: perfdoctor is its daemon meanwhile.

Kineto (the library below torch.profiler) then asks a daemon every 5 s whether it is to trace. They exchange datagrams
over a Unix socket (github.com/pytorch/kineto, libkineto/src/IpcFabricConfigClient.cpp and, in dynolog_headers,
ipcfabric/FabricManager.h, Endpoint.h and Utils.h): the payload's size (8 bytes), its type (32 bytes, NUL-padded), the
payload. A request ``req`` holds what may be configured (bits: 1 events, 2 activities, which are left out while a trace
is being taken), the number of process ids, the job's id, then these ids from the process itself upwards. The answer of
the same type is a configuration as text, empty for none.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.capture.shared_folder import SharedFolder
from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.procfs import is_running
from perfdoctor.probes.readers.thread_ids import inner_id

SWITCH, SOCKET_FOLDER = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"
# Both zero bytes are part of the name.
_NAME, _FILE = b"\0dynolog\0", "dynolog"
_METADATA, _REQUEST = struct.Struct("<Q32s"), struct.Struct("<iiq")
_TYPE, _ACTIVITIES = b"req", 2
# Kineto asks every 5 s; where it found no daemon before, it has first tried for 10 s.
HEARD_PATIENCE_S = 20.0
ASKING_S = 5.0
# Kineto looks once a second whether a trace is due.
LEAD_S = 2.0
# It is taken and written by threads of its own, while the training goes on.
TRACE_S = 1.0
WRITING_S = 60.0


@dataclass
class Client:
    """A process that Kineto asks for.

    Attributes:
        pid: as we count.
        inner_pid: as it does itself.
        heard: it has asked.
        answered: it was asked to trace.
        trace: where that will be.
    """

    pid: int
    inner_pid: int
    folder: SharedFolder
    heard: bool = False
    answered: bool = False

    @property
    def trace(self) -> Path:
        """The trace; there when it is complete."""
        return self.folder.path / f"trace_{self.inner_pid}.json"


def refusal(pids: Sequence[int], environment: Mapping[str, str]) -> Refusal | None:
    """Why processes of one job would not ask us; None if they would, as far as it shows.

    Args:
        pids: the processes.
        environment: they were started with.

    Raises:
        OSError: one is gone, or may not be looked at.
    """
    if SWITCH not in environment:
        return Refusal(f"The job was not started with {SWITCH}.", f"start it with {SWITCH}=1")
    if SOCKET_FOLDER not in environment and not all(map(_same_network, pids)):
        return Refusal("The job is in another network namespace.", f"perfdoctor in its container, or {SOCKET_FOLDER}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
        try:
            if SOCKET_FOLDER not in environment:
                trial.bind(_NAME)
        except OSError:
            return Refusal("Kineto has a daemon already (dynolog, or another perfdoctor).", "dyno gputrace")
    return None


@contextmanager
def daemon(pids: Sequence[int], environment: Mapping[str, str]) -> Iterator[Daemon]:
    """Is Kineto's daemon for some processes.

    Args:
        pids: processes of one job.
        environment: they were started with.

    Raises:
        OSError: there is one already, or a process is gone.
        NoRoomError: there is no folder for the trace.
    """
    with ExitStack() as undo:
        ours = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        folder = environment.get(SOCKET_FOLDER)
        if folder is None:
            ours.bind(_NAME)
        else:
            place = Path(f"/proc/{pids[0]}/root", folder.lstrip("/"), _FILE)
            ours.bind(str(place))
            undo.callback(place.unlink, missing_ok=True)
            place.chmod(0o666)
        clients = []
        for pid in pids:
            clients.append(_client(pid))
            undo.callback(clients[-1].folder.close)
            undo.callback(clients[-1].folder.remove)
        yield Daemon(ours, clients)


class Daemon:
    """Answers the processes of one job.

    Args:
        ours: the socket on which they ask.
        clients: the processes.
    """

    def __init__(self, ours: socket.socket, clients: Sequence[Client]) -> None:
        self._socket = ours
        self.clients = clients
        self._start_ms = 0
        self._socket.settimeout(0.1)

    def trace_all(self) -> None:
        """Lets all that ask take a trace at the same time; those that have one have it at the end."""
        until = time.monotonic() + HEARD_PATIENCE_S
        while time.monotonic() < until and not self._start_ms:
            self._answer_one()
        if not self._start_ms and any(client.heard for client in self.clients):
            self._set_start(ASKING_S)
        until = time.monotonic() + ASKING_S + LEAD_S + TRACE_S + WRITING_S
        while time.monotonic() < until and not all(map(self._is_over, self.clients)):
            self._answer_one()

    def _set_start(self, wait_s: float) -> None:
        self._start_ms = int((time.time() + wait_s + LEAD_S) * 1000)

    def _is_over(self, client: Client) -> bool:
        late = not client.answered and time.time() * 1000 > self._start_ms
        return late or client.trace.exists() or not is_running(client.pid)

    def _answer_one(self) -> None:
        try:
            message, address = self._socket.recvfrom(65536)
        except TimeoutError:
            return
        client, kinds = self._who(message)
        answer = ""
        if client is not None:
            client.heard = True
            if not self._start_ms and all(one.heard for one in self.clients):
                # The others, if there are any, will ask again before it begins.
                self._set_start(ASKING_S if len(self.clients) > 1 else 0.0)
            if self._start_ms and not client.answered and kinds & _ACTIVITIES:
                answer = self._configuration(client)
                client.answered = True
        with suppress(OSError):
            self._socket.sendto(_METADATA.pack(len(answer), _TYPE) + answer.encode(), address)

    def _who(self, message: bytes) -> tuple[Client | None, int]:
        """Who asks, and what may be configured."""
        if len(message) < _METADATA.size + _REQUEST.size:
            return None, 0
        _, kind = _METADATA.unpack_from(message)
        if kind.rstrip(b"\0") != _TYPE:
            return None, 0
        kinds, count, _ = _REQUEST.unpack_from(message, _METADATA.size)
        start = _METADATA.size + _REQUEST.size
        if not 0 < count <= (len(message) - start) // 4:
            return None, 0
        (pid,) = struct.unpack_from("<i", message, start)
        return next((client for client in self.clients if client.inner_pid == pid), None), kinds

    def _configuration(self, client: Client) -> str:
        return "\n".join(
            (
                f"ACTIVITIES_LOG_FILE={client.folder.inner}/trace.json",
                f"PROFILE_START_TIME={self._start_ms}",
                f"ACTIVITIES_DURATION_MSECS={int(TRACE_S * 1000)}",
                "ACTIVITIES_WARMUP_PERIOD_SECS=0",
                "PROFILE_REPORT_INPUT_SHAPES=true",
            )
        )


def _client(pid: int) -> Client:
    # Newer versions of Kineto write nowhere else than to /tmp.
    return Client(pid, inner_id(Path(f"/proc/{pid}")), SharedFolder(pid, ("/tmp",)))


def _same_network(pid: int) -> bool:
    return os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino
