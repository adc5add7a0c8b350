"""The job: the process tree under diagnosis, kept up to date while workers come and go.

Who belongs to the job is read from the kernel's parent and child links and from how processes were started, never from
the names of the user's files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from perfdoctor.capture.peers import Peers
from perfdoctor.capture.redact import mask_command, mask_environment
from perfdoctor.capture.variables import Variables, exchanges_data
from perfdoctor.knowledge.launchers import is_numbered_anew
from perfdoctor.knowledge.threads import LOADER_WORKERS
from perfdoctor.probes.readers.environment import environment_of
from perfdoctor.probes.readers.process import uses_torch, versions_of
from perfdoctor.probes.readers.procfs import CLOCK_TICKS_PER_S, ENDED, Births, arguments_of, name_of, stat_fields
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import CHANNEL, SERVES, Fact, ProcessGone, ProcessSeen, Sample

# How often all processes of the machine are listed for children of any thread of the job, and processes without torch
# asked whether they have it now.
THOROUGH_NS = 2 * NS_PER_S // 5
_MANY = 32  # of more processes than so, more rarely
TORCH_AGAIN_NS = 2 * NS_PER_S

# Where a program's stack begins, in /proc/PID/stat: a forked process has its parent's, and each exec gives another one.
_STACK = 28 - 3


@dataclass
class Member:
    """A living process of the job.

    Attributes:
        stack: where the stack of its program begins.
        runs_another: it was seen to run another program since it was last looked at.
    """

    pid: int
    parent_pid: int
    started_ns: int
    forked: bool
    uses_torch: bool | None
    torch_asked_ns: int
    children_file: int
    command: str
    environment: str
    stack: int
    runs_another: bool = False
    is_peer: bool = False
    versions_read: bool = False
    environment_asked_ns: int = 0


class _Roles(NamedTuple):
    all: tuple[int, ...]
    torch: tuple[int, ...]
    forked: tuple[int, ...]


def _image(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def is_forked(pid: int, parent_pid: int) -> bool:
    """Whether a process still runs its parent's program image and command line."""
    image = _image(pid)
    return image is not None and image == _image(parent_pid) and arguments_of(pid) == arguments_of(parent_pid)


def _belongs_to_parent(pid: int, parent_pid: int) -> bool:
    """Whether a process is a part of its parent's job: forked, spawned by multiprocessing, or launched as a rank."""
    if is_forked(pid, parent_pid):
        return True
    arguments = " ".join(arguments_of(pid))
    if "multiprocessing.spawn" in arguments or "multiprocessing.forkserver" in arguments:
        return True
    numbered = is_numbered_anew(environment_of(pid) or {}, environment_of(parent_pid) or {})
    return numbered and bool(uses_torch(parent_pid))


def find_root(pid: int) -> int:
    """The process at the top of the job that ``pid`` is a part of: of a worker its trainer, of a rank its launcher."""
    while True:
        try:
            parent = psutil.Process(pid).ppid()
        except psutil.Error:
            return pid
        # Orphans are given to process 1, which in a container may be the launcher itself.
        if parent < 1 or (parent == 1 and not uses_torch(1)) or not _belongs_to_parent(pid, parent):
            return pid
        pid = parent


class Job:
    """The processes of one job.

    Args:
        pid: any process of the job; the whole of it is found from there.
        roots: the tops of its trees, where it has several; None for that above ``pid``.
    """

    name = "processes"

    def __init__(self, pid: int, roots: Sequence[int] | None = None) -> None:
        self.asked_pid = pid
        self.root_pids = tuple(roots or (find_root(pid),))
        self.members: dict[int, Member] = {}
        self._roles: _Roles | None = None  # asked for in every tick, of hundreds of processes perhaps
        self._thorough_ns = 0
        self._births = Births()
        self._born = True
        self._peers = Peers()
        self._variables = Variables()
        self._parents: dict[int, int] = {}  # of all processes that there are
        # Process start times count clock ticks since boot; the one clock stands still in suspend and may differ by a
        # constant.
        self._boot_offset_ns = time.monotonic_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def pids(self) -> tuple[int, ...]:
        """Process ids of the living processes, parents before children."""
        return self._find_roles().all

    def torch_pids(self) -> tuple[int, ...]:
        """Those of them that have torch loaded."""
        return self._find_roles().torch

    def close(self) -> None:
        """Gives all files back."""
        for member in self.members.values():
            os.close(member.children_file)
        self.members.clear()
        self._roles = None
        self._births.close()

    def parent_of(self, pid: int) -> int | None:
        """The parent of one of them."""
        member = self.members.get(pid)
        return member.parent_pid if member else None

    def forked_pids(self) -> tuple[int, ...]:
        """Those processes that were forked from another one of the job, as loader workers are."""
        return self._find_roles().forked

    def _find_roles(self) -> _Roles:
        if self._roles is None:
            members = self.members.items()
            torch = tuple(pid for pid, member in members if member.uses_torch and not member.is_peer)
            self._roles = _Roles(tuple(self.members), torch, tuple(pid for pid, member in members if member.forked))
        return self._roles

    def ended(self) -> bool:
        """Whether no process of the job is left."""
        return all(member.is_peer for member in self.members.values())

    def refresh(self, now_ns: int) -> Iterator[Sample]:
        """Looks for processes that came and went; between thorough searches only if any may have come."""
        thorough = now_ns - self._thorough_ns >= THOROUGH_NS * max(1, len(self.members) // _MANY)
        births = self._births.any()
        self._born = self._born or births
        if thorough:
            self._thorough_ns = now_ns
        elif not births:
            return
        if not self.members:
            yield from filter(None, [self._admit(root, 0, now_ns) for root in self.root_pids])
        # Between thorough searches workers are not asked: they are many, and have hardly ever children.
        for pid in [pid for pid, member in self.members.items() if thorough or not member.forked]:
            children = self._children(pid, thorough)
            if children is None:
                os.close(self.members.pop(pid).children_file)
                self._roles = None
                yield ProcessGone(now_ns, pid)
                continue
            if not self.members[pid].is_peer:
                yield from self._admit_all(children, pid, now_ns)
        if thorough:
            if self._born:
                yield from self._find_by_parent(now_ns)
            self._born = births
            for member in [one for one in self.members.values() if one.runs_another]:
                yield from self._look_at_its_program(member, now_ns)
            yield from self._ask_again_for_torch(now_ns)
            yield from self._read_environments_again(now_ns)
            yield from self._read_versions(now_ns)
            yield from self._find_peers(now_ns)

    def _read_versions(self, now_ns: int) -> Iterator[Sample]:
        """Which Python and torch run in each process; a forked one runs what its parent does."""
        for pid, member in self.members.items():
            if member.uses_torch and not member.versions_read and not member.forked and not member.is_peer:
                member.versions_read = True
                for what, version in versions_of(pid).items():
                    yield Fact(now_ns, self.name, f"pid:{pid}", f"{what}_version", version)

    def _find_peers(self, now_ns: int) -> Iterator[Sample]:
        """Admits processes outside of the job that it waits for at the other end of a pipe or a socket."""
        own = {pid for pid, member in self.members.items() if not member.is_peer}
        for pid in self._peers.search(self.members, own):
            if seen := self._admit(pid, 0, now_ns):
                self.members[pid].is_peer = True
                reader, channel = self._peers.found[pid]
                yield seen
                yield Fact(now_ns, self.name, f"pid:{pid}", SERVES, str(reader))
                yield Fact(now_ns, self.name, f"pid:{pid}", CHANNEL, channel)

    def _children(self, pid: int, thorough: bool) -> list[int] | None:
        """Children of a process's main thread; None if it is gone, which a thorough search finds out."""
        try:
            if thorough:
                fields = stat_fields(Path(f"/proc/{pid}/stat").read_bytes())
                if fields[0] in ENDED:
                    return None
                self.members[pid].runs_another |= int(fields[_STACK]) != self.members[pid].stack
            return [int(child) for child in os.pread(self.members[pid].children_file, 65536, 0).split()]
        except OSError:
            return None

    def _find_by_parent(self, now_ns: int) -> Iterator[Sample]:
        """Admits the children of any thread: a process says who its parent is, whichever thread has started it.

        To ask each thread instead takes a file for each of them, and there may be thousands.
        """
        living = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._parents = {pid: parent for pid, parent in self._parents.items() if pid in living}
        for pid in living - self._parents.keys():
            try:
                self._parents[pid] = int(stat_fields(Path(f"/proc/{pid}/stat").read_bytes())[1])
            except OSError:
                continue
        children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            children.setdefault(parent, []).append(pid)
        waiting = [pid for pid, member in self.members.items() if not member.is_peer]
        for pid in waiting:
            for seen in self._admit_all(children.get(pid, ()), pid, now_ns):
                waiting.append(seen.pid)  # its children come in their turn
                yield seen

    def _admit_all(self, children: Iterable[int], parent_pid: int, now_ns: int) -> Iterator[ProcessSeen]:
        for child in children:
            known = child == os.getpid() or child in self.members
            if not known and (seen := self._admit(child, parent_pid, now_ns)):
                yield seen

    def _admit(self, pid: int, parent_pid: int, now_ns: int) -> ProcessSeen | None:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            children_file = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY)
        except OSError:
            return None
        name, _, rest = stat.partition("(")[2].rpartition(")")
        fields = rest.split()
        if fields[0] in "ZX":
            os.close(children_file)
            return None
        started_ns = int(fields[19]) * NS_PER_S // CLOCK_TICKS_PER_S + self._boot_offset_ns
        parent = self.members.get(parent_pid)
        forked = parent is not None and is_forked(pid, parent_pid)
        torch = parent.uses_torch if parent is not None and forked else uses_torch(pid)
        # A forked process was started with what its parent was.
        command = parent.command if parent is not None and forked else mask_command(arguments_of(pid))
        environment = parent.environment if parent is not None and forked else self._environment(pid)
        self._roles = None
        self.members[pid] = Member(
            pid,
            int(fields[1]),
            started_ns,
            forked,
            torch,
            now_ns,
            children_file,
            command,
            environment,
            int(fields[_STACK]),
        )
        return self._seen(self.members[pid], name, now_ns)

    def _seen(self, member: Member, name: str, now_ns: int) -> ProcessSeen:
        return ProcessSeen(
            now_ns,
            member.pid,
            member.parent_pid,
            member.started_ns,
            name,
            member.forked,
            member.uses_torch,
            member.command,
            member.environment,
        )

    def _ask_again_for_torch(self, now_ns: int) -> Iterator[Sample]:
        """A process that has just been started may load torch later, or run another program."""
        for member in list(self.members.values()):
            if member.uses_torch or now_ns - member.torch_asked_ns < TORCH_AGAIN_NS:
                continue
            member.torch_asked_ns = now_ns
            member.uses_torch = uses_torch(member.pid)
            self._roles = None
            if member.uses_torch:
                environment = self._environment(member.pid)
                yield from self._look_again(member, name_of(member.pid), environment, now_ns)

    def _look_at_its_program(self, member: Member, now_ns: int) -> Iterator[Sample]:
        """Who was met between its fork and its exec has seemed to be what its parent is."""
        try:
            member.stack = int(stat_fields(Path(f"/proc/{member.pid}/stat").read_bytes())[_STACK])
        except OSError:
            return
        member.runs_another = member.forked = member.versions_read = False
        member.uses_torch, member.torch_asked_ns = uses_torch(member.pid), now_ns
        self._roles = None
        yield from self._look_again(member, name_of(member.pid), self._environment(member.pid), now_ns)

    def _read_environments_again(self, now_ns: int) -> Iterator[Sample]:
        """Which rank it is, many a process learns only when it has torch loaded; loader workers are none.

        It is asked again whenever it has become twice as old: who has just been started learns it soon, or never.
        """
        for member in list(self.members.values()):
            early = not member.uses_torch or now_ns - member.torch_asked_ns < TORCH_AGAIN_NS
            asked_ns = member.environment_asked_ns
            if early or member.is_peer or (asked_ns and now_ns - asked_ns < asked_ns - member.started_ns):
                continue
            member.environment_asked_ns = now_ns
            name = name_of(member.pid)
            # What is forked has its parent's variables, unless it is a rank itself.
            if name.startswith(LOADER_WORKERS) or (member.forked and not exchanges_data(member.pid)):
                continue
            environment = self._environment(member.pid)
            if environment not in ("null", member.environment):
                yield from self._look_again(member, name, environment, now_ns)

    def _environment(self, pid: int) -> str:
        """As JSON, secrets masked; null where it cannot be read."""
        variables = self._variables.of(pid)
        return json.dumps(None if variables is None else mask_environment(variables))

    def _look_again(self, member: Member, name: str, environment: str, now_ns: int) -> Iterator[Sample]:
        member.command = mask_command(arguments_of(member.pid))
        member.environment = environment
        if name:
            yield self._seen(member, name, now_ns)
