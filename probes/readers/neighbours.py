"""Which processes outside the job keep the job's cores busy.

A scan reads one small file of every process: 13 µs of CPU each (Linux 6.18, x86-64), so 1000 processes every 5 s cost
0.3 % of a core.
"""

import os
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes.readers.procfs import CLOCK_TICKS_PER_S, arguments_of, stat_fields
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Fact, Reading

# Who uses less of a core between two scans is not worth a word: 3 ticks of the kernel's in 5 s are its noise.
_LEAST_CORES = 0.05
# So many processes are looked at in one scan.
_SCANNED = 4096
_PYTHON = re.compile(r"python[\d.]*$")
_LONGEST_NAME = 60


def command_of(name: str, arguments: Sequence[str]) -> str:
    """What a process is called: its name and, of Python, the script or module that it runs; no other argument.

    Args:
        name: the kernel's, of at most 15 characters.
        arguments: its command line; empty where that cannot be read.
    """
    if not arguments or not _PYTHON.search(arguments[0]):
        return name
    following = iter(arguments[1:])
    for argument in following:
        if argument == "-m":
            return f"{name} -m {next(following, '')}".rstrip()[:_LONGEST_NAME]
        if argument in ("-X", "-W"):
            next(following, "")
        elif argument.startswith("-c"):
            return name
        elif not argument.startswith("-"):
            return f"{name} {os.path.basename(argument)}"[:_LONGEST_NAME]
    return name


class _Used(NamedTuple):
    """CPU seconds of a process when it was scanned, and the core on which it ran last."""

    time_ns: int
    seconds: float
    core: int
    started_ticks: int
    command: str


class Neighbours:
    """Scans all processes for those that use CPU time; those that live between two scans only are not seen.

    Args:
        root: where /proc is.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._before: dict[int, _Used] = {}
        self._known: set[int] = set()

    def sample(self, time_ns: int, ours: Container[int], cores: frozenset[int]) -> Iterator[Reading | Fact]:
        """The CPU time of processes that used some since the last scan, on some cores.

        Args:
            time_ns: now.
            ours: processes of the job, and perfdoctor's own.
            cores: on which the job may run; empty where that is not known, and any core counts.
        """
        found = {pid: used for pid in self._pids() if pid not in ours and (used := self._read(pid, time_ns))}
        for pid, used in found.items():
            before = self._before.get(pid)
            if before is None or before.started_ticks != used.started_ticks or (cores and used.core not in cores):
                continue
            if used.seconds - before.seconds < _LEAST_CORES * (used.time_ns - before.time_ns) / NS_PER_S:
                continue
            subject = f"neighbour:{pid}"
            if pid not in self._known:
                self._known.add(pid)
                yield Fact(time_ns, "cpu", subject, "command", command_of(used.command, arguments_of(pid, self._root)))
                yield Reading(before.time_ns, "cpu", subject, "cpu_seconds_total", before.seconds)
            yield Reading(time_ns, "cpu", subject, "cpu_seconds_total", used.seconds)
        self._before = found

    def _pids(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self._root / "proc") if name.isdigit()][:_SCANNED]
        except OSError:
            return []

    def _read(self, pid: int, time_ns: int) -> _Used | None:
        try:
            file = os.open(self._root / f"proc/{pid}/stat", os.O_RDONLY)
            try:
                stat = os.read(file, 1024)
            finally:
                os.close(file)
        except OSError:
            return None
        fields = stat_fields(stat)
        command = stat[stat.find(b"(") + 1 : stat.rfind(b")")].decode(errors="replace")
        seconds = (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S
        return _Used(time_ns, seconds, int(fields[36]), int(fields[19]), command)
