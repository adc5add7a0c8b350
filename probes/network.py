"""Traffic of the job's network namespace and of the host's fabric, and the sockets of the job's processes.

A sample costs 50 µs of CPU: 0.01 % of a core, sockets included (Linux 6.18, x86-64, 100 sockets).
"""

import os
import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers.fabric import Fabric
from perfdoctor.probes.readers.permissions import why_not
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.procfs import KeptFiles
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import THINNED, Event, Fact, Reading, Sample, Unavailable

SOCKETS_PERIOD_NS = 5 * NS_PER_S  # reading them costs the more the more there are
MOST_PEERS = 64  # of a server with many clients, enough to name
KINDS = ("tcp", "udp", "unix", "other")

# So many open files are looked at in one sample; of more, those of some processes in turn.
MOST_DESCRIPTORS = 2000
# Listing sockets may take so long; where it takes longer, they are listed more rarely in proportion.
_SOCKETS_BUDGET_NS = 20_000_000
_ESTABLISHED = "01"  # include/net/tcp_states.h
_INFINIBAND = 32  # ARPHRD_INFINIBAND in include/uapi/linux/if_arp.h


def parse_interfaces(text: str) -> dict[str, dict[str, int]]:
    """Counters by interface from a net/dev table (proc(5)); unused ones are left out."""
    interfaces = {}
    for line in text.splitlines()[2:]:
        name, _, columns = line.partition(":")
        numbers = [int(column) for column in columns.split()]
        if len(numbers) < 12 or not numbers[1] + numbers[9]:
            continue  # Columns: eight received, eight sent.
        interfaces[name.strip()] = {
            "received_bytes_total": numbers[0],
            "sent_bytes_total": numbers[8],
            "received_packets_total": numbers[1],
            "sent_packets_total": numbers[9],
            "dropped_packets_total": numbers[3] + numbers[11],
            "errors_total": numbers[2] + numbers[10],
        }
    return interfaces


def parse_tcp(snmp: str) -> dict[str, int]:
    """Counters of TCP by their kernel names from a net/snmp table: a line of names, then one of numbers."""
    lines = [line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:")]
    return dict(zip(lines[0], map(int, lines[1]), strict=False)) if len(lines) == 2 else {}


def address(text: str) -> str:
    """``address:port`` meant by the kernel's hexadecimal ``0100007F:1F90``, words in native byte order."""
    host, _, port = text.partition(":")
    words = [int(host[start : start + 8], 16) for start in range(0, len(host), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(words) == 1:
        return f"{socket.inet_ntop(socket.AF_INET, packed)}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]:{int(port, 16)}"


class NetworkProbe:
    """Reads interfaces, TCP counters and sockets.

    Args:
        root: where /proc and /sys are.
    """

    name = "network"
    period_s = 2.0

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = KeptFiles(root)
        self._fabric = Fabric(root, self._files)
        self._job: Processes | None = None
        self._reported: dict[int, set[str]] = {}
        self._refused = False
        self._sockets_next_ns = 0
        self._waiting: list[int] = []  # processes whose sockets are still to be looked at in this round
        self._seen: set[int] = set()
        self._tcp: dict[int, set[str]] = {}  # inodes of the sockets seen last, by process
        self._skipped = 0  # samples without the send queues that are still to come

    def check(self, process: Candidate) -> Availability:
        """Interfaces are seen by everybody; the sockets of a process need the right to read it."""
        sockets = None if process.rights.read else _unseen(process.pid, process.rights.why_not)
        return Availability.but_for(self.name, sockets)

    def open(self, job: Processes) -> Iterable[Sample]:
        """Starts looking; returns the speeds of interfaces and the first sample."""
        self._job = job
        time_ns = now_ns()
        first = list(self.sample(time_ns))
        interfaces = {
            sample.subject for sample in first if isinstance(sample, Reading) and sample.subject[:10] == "interface:"
        }
        if not interfaces:
            first.append(Unavailable("network", "The job's network interfaces cannot be read.", "mount /proc"))
        return [*self._links(time_ns, sorted(interfaces)), *self._fabric.facts(time_ns), *first]

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples interfaces and TCP; sockets at their own period."""
        pids = self._job.pids() if self._job else ()
        yield from self._interfaces(now_ns, pids)
        yield from self._fabric.readings(now_ns)
        if self._waiting or now_ns >= self._sockets_next_ns:
            self._waiting = [pid for pid in self._waiting or pids if pid in pids]
            yield from self._some_sockets(now_ns)
        self._tcp = {pid: self._tcp[pid] for pid in pids if self._tcp.get(pid)}
        yield from self._send_queue(now_ns)

    def close(self) -> Iterator[Sample]:
        """Closes all files, and says whose sockets there was no time to look at."""
        self._files.close()
        if unseen := set(self._waiting) - self._seen:
            yield Event(now_ns(), self.name + THINNED, f"the sockets of {len(unseen)} processes were not looked at yet")

    def _links(self, time_ns: int, subjects: Iterable[str]) -> Iterator[Fact]:
        """How fast links are, the largest packet that they carry, and which send through a fabric's port (IPoIB)."""
        for subject in subjects:
            folder = self._root / "sys/class/net" / subject.removeprefix("interface:")
            for file, name, unit in (("speed", "link_bits_per_second", 1_000_000), ("mtu", "mtu_bytes", 1)):
                said = _read_number(folder / file)
                if said is not None and said > 0:
                    yield Fact(time_ns, "network", subject, name, str(said * unit))
            if _read_number(folder / "type") == _INFINIBAND:
                yield Fact(time_ns, "network", subject, "over_fabric", "yes")

    def _interfaces(self, time_ns: int, pids: Iterable[int]) -> Iterator[Reading]:
        for pid in pids:
            try:
                interfaces = parse_interfaces(self._files.read(f"/proc/{pid}/net/dev").decode())
                tcp = parse_tcp(self._files.read(f"/proc/{pid}/net/snmp").decode())
            except OSError:
                continue
            for interface, values in interfaces.items():
                for name, value in values.items():
                    yield Reading(time_ns, "network", f"interface:{interface}", name, value)
            yield Reading(time_ns, "network", "network", "tcp_segments_sent_total", tcp.get("OutSegs"))
            yield Reading(time_ns, "network", "network", "tcp_retransmits_total", tcp.get("RetransSegs"))
            return

    def _send_queue(self, time_ns: int) -> Iterator[Reading]:
        """What the job's connections hold that the other side has not yet confirmed, by the sockets seen last."""
        held = set().union(*self._tcp.values())
        if self._skipped:
            self._skipped -= 1
        elif held:
            start_ns = now_ns()
            queued = queued_bytes(self._root / f"proc/{next(iter(self._tcp))}/net", held)
            yield Reading(time_ns, "network", "network", "send_queue_bytes", queued)
            self._skipped = _times_rarer(start_ns) - 1

    def _some_sockets(self, time_ns: int) -> Iterator[Sample]:
        start_ns = now_ns()
        table: dict[str, tuple[str, str]] | None = None
        looked_at = 0
        while self._waiting and looked_at < MOST_DESCRIPTORS:
            pid = self._waiting.pop(0)
            self._seen.add(pid)
            try:
                descriptors = os.listdir(self._root / f"proc/{pid}/fd")
                looked_at += len(descriptors)
                inodes = socket_inodes(f"{self._root}/proc/{pid}/fd", descriptors)
                if inodes and table is None:
                    table = socket_table(self._root / f"proc/{pid}/net")
                kinds = [(table or {}).get(inode, ("other", "")) for inode in inodes]
                self._tcp[pid] = {inode for inode, (kind, _) in zip(inodes, kinds, strict=True) if kind == "tcp"}
            except PermissionError:
                yield from self._refusal(pid)
            except OSError:
                continue
            else:
                yield from self._sockets(time_ns, pid, kinds)
        self._sockets_next_ns = time_ns + SOCKETS_PERIOD_NS * _times_rarer(start_ns)

    def _sockets(self, time_ns: int, pid: int, sockets: list[tuple[str, str]]) -> Iterator[Sample]:
        subject = f"pid:{pid}"
        kinds = Counter(kind for kind, _ in sockets)
        for kind in KINDS:
            yield Reading(time_ns, "network", subject, f"{kind}_sockets", kinds[kind])
        reported = self._reported.setdefault(pid, set())
        for peer in sorted({peer for _, peer in sockets if peer} - reported)[: MOST_PEERS - len(reported)]:
            reported.add(peer)
            yield Fact(time_ns, "network", subject, "tcp_peer", peer)

    def _refusal(self, pid: int) -> Iterator[Unavailable]:
        if not self._refused:
            self._refused = True
            yield Unavailable(self.name, *_unseen(pid, why_not(pid, self._root)))


def _times_rarer(start_ns: int) -> int:
    """How many times as rarely as planned sockets are to be listed, after a listing that began then."""
    return max(1, (now_ns() - start_ns) // _SOCKETS_BUDGET_NS)


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _unseen(pid: int | None, why: Refusal) -> Refusal:
    return Refusal(f"Only interfaces are seen, not the sockets of process {pid}. {why.reason}", why.enable)


def socket_inodes(folder: str, descriptors: Iterable[str]) -> list[str]:
    """Inodes of the sockets among a process's open files.

    Args:
        folder: of its descriptors in /proc.
        descriptors: their names there.

    Raises:
        PermissionError: it belongs to somebody else.
    """
    inodes = []
    for name in descriptors:
        try:
            target = os.readlink(f"{folder}/{name}")
        except PermissionError:
            raise
        except OSError:
            continue  # Closed meanwhile.
        if target.startswith("socket:["):
            inodes.append(target[8:-1])
    return inodes


def _rows(net: Path, name: str) -> list[list[str]]:
    """The columns of all sockets in one of a namespace's tables.

    Raises:
        OSError: it cannot be read.
    """
    return [line.split() for line in (net / name).read_text(errors="replace").splitlines()[1:]]


def queued_bytes(net: Path, inodes: Collection[str]) -> int | None:
    """Bytes in the send queues of some TCP sockets of a namespace; None where its tables cannot be read."""
    found = None
    for name in ("tcp", "tcp6"):
        try:
            rows = _rows(net, name)
        except OSError:
            continue
        found = (found or 0) + sum(int(row[4].partition(":")[0], 16) for row in rows if row[9] in inodes)
    return found


def socket_table(net: Path) -> dict[str, tuple[str, str]]:
    """Kind and remote address (``""`` unless an established TCP connection) by inode of one namespace."""
    table: dict[str, tuple[str, str]] = {}
    for kind, names, inode_at in (
        ("tcp", ("tcp", "tcp6"), 9),
        ("udp", ("udp", "udp6"), 9),
        ("unix", ("unix",), 6),
    ):
        for name in names:
            try:
                rows = _rows(net, name)
            except OSError:
                continue  # No IPv6 here, for instance.
            for fields in rows:
                connected = kind == "tcp" and fields[3] == _ESTABLISHED
                table[fields[inode_at]] = (kind, address(fields[2]) if connected else "")
    return table
