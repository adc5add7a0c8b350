"""The daemon's side of Kineto's protocol, with datagrams as Kineto sends them."""

import os
import socket
import struct
from pathlib import Path

import pytest

from perfdoctor.capture.kineto_daemon import Client, Daemon
from perfdoctor.capture.shared_folder import SharedFolder

PID = 4711
IDLE, BUSY = 3, 1


def request(pid: int, kinds: int = IDLE, kind: bytes = b"req") -> bytes:
    """As in IpcFabricConfigClient: the process, and the two above it."""
    payload = struct.pack("<iiq3i", kinds, 3, 0, pid, 17, 1)
    return struct.pack("<Q32s", len(payload), kind) + payload


class Kineto:
    """A client of the daemon's."""

    def __init__(self, folder: Path, *pids: int) -> None:
        self.there, self.here = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        self.there.bind(str(folder / "daemon"))
        self.here.bind(str(folder / "client"))
        self.here.settimeout(5)
        shared = SharedFolder(os.getpid(), (str(folder),))
        self.daemon = Daemon(self.there, [Client(pid, pid, shared) for pid in pids])

    def asks(self, message: bytes) -> str:
        """Sends a datagram; returns the configuration that comes back."""
        self.here.sendto(message, self.there.getsockname())
        self.daemon._answer_one()
        answer = self.here.recv(65536)
        size, kind = struct.unpack_from("<Q32s", answer)
        assert kind.rstrip(b"\0") == b"req"
        assert len(answer) == 40 + size
        return answer[40:].decode()

    def close(self) -> None:
        self.there.close()
        self.here.close()


@pytest.fixture
def one(tmp_path: Path):
    kineto = Kineto(tmp_path, PID)
    yield kineto
    kineto.close()


def test_is_told_once_to_trace(one: Kineto) -> None:
    told = dict(line.split("=") for line in one.asks(request(PID)).splitlines())
    assert told["ACTIVITIES_LOG_FILE"].endswith("/trace.json")
    assert int(told["PROFILE_START_TIME"]) > 1e12
    assert one.daemon.clients[0].answered
    assert one.asks(request(PID)) == ""


def test_waits_while_another_trace_is_being_taken(one: Kineto) -> None:
    assert one.asks(request(PID, BUSY)) == ""
    assert not one.daemon.clients[0].answered
    assert one.asks(request(PID))


@pytest.mark.parametrize(
    "message",
    [b"", b"short", request(1), request(PID, kind=b"ctxt"), request(PID)[:56], request(PID)[:-12] + b"\xff" * 2],
    ids=["nothing", "short", "another process", "another type", "cut", "cut within"],
)
def test_whoever_else_asks_is_told_nothing(one: Kineto, message: bytes) -> None:
    assert one.asks(message) == ""


def test_ranks_are_told_the_same_time_once_all_have_asked(tmp_path: Path) -> None:
    kineto = Kineto(tmp_path, 1, 2)
    assert kineto.asks(request(1)) == ""
    second, first = kineto.asks(request(2)), kineto.asks(request(1))
    kineto.close()
    starts = [[line for line in told.splitlines() if "START_TIME" in line] for told in (first, second)]
    assert starts[0] == starts[1] != []
