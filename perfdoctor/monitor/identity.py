"""Who a job is, so that it is known again when it is started anew, by whoever restarts it, under another process id."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.capture.job import find_root
from perfdoctor.capture.redact import mask_command
from perfdoctor.knowledge.environment import RANK_VARIABLES
from perfdoctor.probes.readers.environment import environment_of
from perfdoctor.probes.readers.procfs import CLOCK_TICKS_PER_S, ENDED, arguments_of, stat_fields

_STARTED = 19  # the field of /proc/PID/stat behind the name, in clock ticks since boot
# How often a new process is looked at: it runs its parent's program for a moment before its own.
_CHECKS = 5


@dataclass(frozen=True)
class Identity:
    """What a job's first process was started as.

    Attributes:
        arguments: its command line, word by word.
        program: the file that it runs.
        folder: where it was started.
        user: its user's number.
        place: which rank it is, by the variables that launchers set.
    """

    arguments: tuple[str, ...]
    program: str
    folder: str
    user: int
    place: Mapping[str, str]

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """That of a process; None if it has gone, or may not be read."""
        folder = Path(f"/proc/{pid}")
        try:
            program, cwd, user = os.readlink(folder / "exe"), os.readlink(folder / "cwd"), folder.stat().st_uid
        except OSError:
            return None
        environment = environment_of(pid) or {}
        place = {name: environment[name] for name in RANK_VARIABLES if name in environment}
        arguments = tuple(arguments_of(pid))
        return cls(arguments, program.removesuffix(" (deleted)"), cwd, user, place) if any(arguments) else None

    @property
    def command(self) -> str:
        """The command line, secrets masked."""
        return mask_command(list(self.arguments))

    def is_again(self, other: Identity) -> bool:
        """Whether another process was started as this one was, whichever rank it is."""
        return (self.arguments, self.program, self.folder, self.user) == (
            other.arguments, other.program, other.folder, other.user,
        )  # fmt: skip


class Search:
    """Looks for a job that has ended and is started again; processes that are no such are read once.

    Args:
        whom: the job.
        ended_ticks: when it was last seen, in clock ticks since boot: what started earlier is another one.
    """

    def __init__(self, whom: Identity, ended_ticks: int) -> None:
        self._whom, self._since = whom, ended_ticks
        self._passed: dict[int, int] = {}

    def find(self) -> int | None:
        """The process at the top of the job where it is there again; of several the same rank, else the oldest."""
        found = sorted(self._new(), key=lambda one: (one[2].place != self._whom.place, one[1]))
        return find_root(found[0][0]) if found else None

    def _new(self) -> Iterator[tuple[int, int, Identity]]:
        living = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._passed = {pid: looked for pid, looked in self._passed.items() if pid in living}
        for pid in living:
            if self._passed.get(pid, 0) >= _CHECKS:
                continue
            self._passed[pid] = self._passed.get(pid, 0) + 1
            started = started_ticks(pid)
            if started is None or started < self._since:
                self._passed[pid] = _CHECKS
            elif (other := Identity.of(pid)) is not None and self._whom.is_again(other):
                yield pid, started, other


def started_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None if it has gone."""
    try:
        fields = stat_fields(Path(f"/proc/{pid}/stat").read_bytes())
    except OSError:
        return None
    return None if fields[0] in ENDED else int(fields[_STARTED])


def ticks_now() -> int:
    """The time in clock ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * CLOCK_TICKS_PER_S)
