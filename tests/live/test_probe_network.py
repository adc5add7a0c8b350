"""The network probe against real sockets on the loopback interface."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from perfdoctor.probes import network
from perfdoctor.probes.network import NetworkProbe, address, parse_interfaces, parse_tcp, queued_bytes
from perfdoctor.recording.schema import Fact, Sample
from tests.processes.watching import as_nobody, facts, looked, number, opened, plant, program, readings

pytestmark = pytest.mark.alone

MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def peers(samples: list[Sample], pid: int) -> set[str]:
    return {sample.value for sample in samples if isinstance(sample, Fact) and sample.subject == f"pid:{pid}"}


def test_counts_bytes_through_a_socket_and_names_the_peer(server: socket.socket) -> None:
    port = server.getsockname()[1]
    code = f"import socket\ntalk = socket.create_connection(('127.0.0.1', {port}))\n"
    code += "done()\ntalk.sendall(bytes(8 << 20))\n"
    with program(code) as job:
        job.step()
        talk, _ = server.accept()
        probe = NetworkProbe()
        before = opened(probe, job.pid)
        assert job.process.stdin is not None
        job.process.stdin.write("\n")
        job.process.stdin.flush()
        received = 0
        while received < 8 * MIB:
            received += len(talk.recv(MIB))
        after = looked(probe)
        talk.close()
        list(probe.close())
    sent = number(after, "interface:lo", "sent_bytes_total") - number(before, "interface:lo", "sent_bytes_total")
    assert 8 * MIB <= sent < 64 * MIB
    segments = number(after, "network", "tcp_segments_sent_total") - number(
        before, "network", "tcp_segments_sent_total"
    )
    assert segments > 8
    assert peers(before, job.pid) == {f"127.0.0.1:{port}"}


def test_bytes_that_nobody_takes_are_queued(server: socket.socket) -> None:
    with socket.create_connection(server.getsockname()) as talk:
        talk.setblocking(False)
        inode = str(os.fstat(talk.fileno()).st_ino)
        assert queued_bytes(Path("/proc/self/net"), {inode}) == 0
        with suppress(BlockingIOError):
            while True:
                talk.send(bytes(MIB))
        assert (queued_bytes(Path("/proc/self/net"), {inode}) or 0) > 64 * 1024


def test_the_queues_of_a_job_without_tcp_are_not_looked_at_and_those_of_many_sockets_more_rarely(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[set[str]] = []
    monkeypatch.setattr(network, "queued_bytes", lambda _, inodes: looks.append(inodes) or 0)
    with program("import socket\nkept = socket.socketpair()\ndone()") as job:
        job.step()
        opened(NetworkProbe(), job.pid)
    assert looks == []
    port = server.getsockname()[1]
    with program(f"import socket\ntalk = socket.create_connection(('127.0.0.1', {port}))\ndone()") as job:
        job.step()
        monkeypatch.setattr(network, "_times_rarer", lambda _: 3)
        probe = NetworkProbe()
        opened(probe, job.pid)
        for _ in range(3):
            looked(probe)
    assert [len(inodes) for inodes in looks] == [1, 1]


def test_counts_sockets_by_kind() -> None:
    code = "import socket\nkept = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), *socket.socketpair()]\n"
    code += "kept.append(socket.create_server(('127.0.0.1', 0)))\n"
    code += "kept[0].bind(('127.0.0.1', 0))\ndone()\n"
    with program(code) as job:
        job.step()
        samples = opened(NetworkProbe(), job.pid)
        expected = psutil.Process(job.pid).net_connections("all")
    subject = f"pid:{job.pid}"
    kinds = {kind: number(samples, subject, f"{kind}_sockets") for kind in ("tcp", "udp", "unix", "other")}
    assert kinds == {"tcp": 1, "udp": 1, "unix": 2, "other": 0}
    assert sum(kinds.values()) == len(expected)


def test_interfaces_agree_with_psutil() -> None:
    samples = opened(NetworkProbe(), os.getpid())
    expected = psutil.net_io_counters(pernic=True)
    for interface in {subject[10:] for subject, _ in readings(samples) if subject.startswith("interface:")}:
        seen = number(samples, f"interface:{interface}", "received_bytes_total")
        assert seen == pytest.approx(expected[interface].bytes_recv, rel=0.05, abs=65536)


def test_survives_a_process_that_vanishes() -> None:
    with program("done()") as job:
        job.step()
        probe = NetworkProbe()
        opened(probe, job.pid)
    probe._sockets_next_ns = 0
    after = readings(looked(probe))
    list(probe.close())
    assert (f"pid:{job.pid}", "tcp_sockets") not in after


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_sockets_of_another_user_are_unknown_not_zero() -> None:
    code = """
from perfdoctor.probes.network import NetworkProbe
give_up()
class Job:
    pids = torch_pids = lambda self: (int(sys.argv[1]),)
for sample in NetworkProbe().open(Job()):
    print(type(sample).__name__, *sample[1:], sep="|")
"""
    with program("done()") as job:
        job.step()
        lines = as_nobody(code, str(job.pid)).splitlines()
    assert len([line for line in lines if line.startswith("Unavailable|")]) == 1
    assert not [line for line in lines if "tcp_sockets" in line]
    assert [line for line in lines if "interface:lo|received_bytes_total" in line]


def test_each_peer_is_told_once(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with program(f"import socket\ntalk = socket.create_connection(('127.0.0.1', {port}))\ndone()") as job:
        job.step()
        probe = NetworkProbe()
        first = opened(probe, job.pid)
        probe._sockets_next_ns = 0
        second = looked(probe)
        list(probe.close())
    assert len(peers(first, job.pid)) == 1
    assert peers(second, job.pid) == set()


@pytest.mark.skipif(sys.byteorder != "little", reason="the examples are of little-endian machines")
def test_addresses() -> None:
    assert address("0100007F:1F90") == "127.0.0.1:8080"
    assert address("00000000000000000000000001000000:01BB") == "[::1]:443"


def test_interfaces_that_never_carried_anything_are_left_out() -> None:
    table = (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast"
        "|bytes packets errs drop fifo colls carrier compressed\n"
        "    lo: 100 2 1 3 0 0 0 0 200 4 5 7 0 0 0 0\n"
        "  ifb0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    assert parse_interfaces(table) == {
        "lo": {
            "received_bytes_total": 100,
            "sent_bytes_total": 200,
            "received_packets_total": 2,
            "sent_packets_total": 4,
            "dropped_packets_total": 10,
            "errors_total": 6,
        }
    }


def test_tcp_counters_go_by_name() -> None:
    snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 900 12\n"
    assert parse_tcp(snmp) == {"RtoMin": 200, "OutSegs": 900, "RetransSegs": 12}


def test_what_a_link_carries_is_a_fact(tmp_path: Path) -> None:
    dev = "h\nh\n  eth0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth1: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
    tree = {
        "proc/77/net/dev": dev,
        "proc/77/net/snmp": "Tcp: OutSegs RetransSegs\nTcp: 1 2\n",
        "sys/class/net/eth0/speed": "25000\n",
        "sys/class/net/eth1/speed": "-1\n",
        "sys/class/net/eth1/mtu": "1500\n",
    }
    samples = opened(NetworkProbe(plant(tmp_path, tree)), 77)
    links = {(sample.subject, sample.name): sample.value for sample in samples if isinstance(sample, Fact)}
    assert links == {
        ("interface:eth0", "link_bits_per_second"): "25000000000",
        ("interface:eth1", "mtu_bytes"): "1500",
    }


FABRIC = {
    "rate": "400 Gb/sec (4X NDR)\n",
    "state": "4: ACTIVE\n",
    "link_layer": "InfiniBand\n",
    "counters/port_rcv_data": "1000\n",
    "counters/port_xmit_data": "500\n",
    "counters/port_rcv_packets": "7\n",
    "counters/symbol_error": "3\n",
    "counters/link_downed": "1\n",
    "counters/port_rcv_errors": "2\n",
    "counters/port_xmit_discards": "4\n",
    "hw_counters/packet_seq_err": "5\n",
}


def test_ports_of_a_fabric(tmp_path: Path) -> None:
    """Its counters count 4 bytes each, and IPoIB's interface carries what its port does."""
    up, down = "sys/class/infiniband/mlx5_0/ports/1", "sys/class/infiniband/mlx5_1/ports/1"
    ports = {f"{up}/{name}": text for name, text in FABRIC.items()}
    ports["sys/class/infiniband/mlx5_0/board_id"] = "MT_0000000838\n"
    root = plant(tmp_path, {**ports, f"{down}/state": "1: DOWN\n", "sys/class/net/ib0/type": "32\n"})
    interfaces = "Inter-| Receive\n face |bytes\n   ib0: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n"
    plant(root, {"proc/7/net/dev": interfaces, "proc/7/net/snmp": ""})
    probe = NetworkProbe(root)
    samples = opened(probe, 7)
    seen = {name: value for (subject, name), value in readings(samples).items() if subject == "fabric:mlx5_0/1"}
    assert seen == {
        "link_active": 1,
        "received_bytes_total": 4000,
        "sent_bytes_total": 2000,
        "received_packets_total": 7,
        "symbol_errors_total": 3,
        "link_downs_total": 1,
        "dropped_packets_total": 6,
        "resent_packets_total": 5,
    }
    assert readings(samples)["fabric:mlx5_1/1", "link_active"] == 0
    assert facts(samples)["fabric:mlx5_0/1", "link_bits_per_second"] == str(400 * 10**9)
    assert facts(samples)["fabric:mlx5_0/1", "board"] == "MT_0000000838"
    assert facts(samples)["interface:ib0", "over_fabric"] == "yes"
    assert looked(probe)
    list(probe.close())
