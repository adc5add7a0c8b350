"""What holds a job up that makes no progress at all: the verdict beside those of jobs that are slow. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfdoctor.messages import Text

# What a process sits in. Ids are stable: they are the API of reports, tests and users' scripts.
STOPPED = "stopped"
DEBUGGER = "debugger"
TERMINAL = "terminal"
EXCEPTION = "exception"
EXIT = "exit"
LOCK = "lock"
FILE_LOCK = "file_lock"
GIL = "gil"
PIPE = "pipe"
SOCKET = "socket"
STORAGE = "storage"
CHILD = "child_process"
SLEEP = "sleep"
LOOP = "loop"
UNKNOWN = "unknown"
# How the target of a process begins that is frozen with its control group, which follows.
FROZEN = "cgroup:"
# Between ranks.
MISMATCH = "collective_mismatch"
MISSING_RANK = "missing_rank"
UNWATCHED_RANK = "unwatched_rank"
RANK_ELSEWHERE = "rank_elsewhere"
GPU_WAIT = "gpu_wait"
NETWORK = "network"
RENDEZVOUS = "rendezvous"
KINDS = (
    STOPPED, DEBUGGER, TERMINAL, EXCEPTION, EXIT, LOCK, FILE_LOCK, GIL, PIPE, SOCKET, STORAGE, CHILD, SLEEP, LOOP,
    UNKNOWN, MISMATCH, MISSING_RANK, UNWATCHED_RANK, RANK_ELSEWHERE, GPU_WAIT, NETWORK, RENDEZVOUS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Halt:
    """Where one process of the job has stopped moving.

    Attributes:
        kind: what its main thread sits in: one of ``KINDS``, or ``collective``, ``loader`` of those that wait for
            others of the job.
        pid: the process; 0 where only a dump of torch's Flight Recorder shows it.
        rank: of the trainer that it is, or belongs to; None where it belongs to none.
        own: it is the trainer itself, and no worker or child of it.
        name: the process's name.
        call: the system call, None if it runs or that is unknown.
        target: what the call is about, as of ``perfdoctor.recording.schema.ThreadSample``; of a process that is frozen
            the control group with which it is.
        line: the innermost line of the job's own code, ``file:line function``; "" if there is none.
        collective: the function of torch.distributed that it is in; "" if it is in none.
        handling: the type of the exception that it handles; "" if none, or not known.
        others: processes at the other end of what it waits for, as ``name (pid)``; None where that is not known.
        threads: where its other Python threads are, lines as above.
        host: the one that it runs on; "" where only one was watched.
        sequence: the number of the collective that it is in, or was in last, in its group; None where no dump of
            torch's Flight Recorder says.
        group: what the job calls that group, or its name; "" for the group of all ranks, or likewise.
        tensors: types and sizes of what goes into the collective; "" likewise.
    """

    kind: str
    pid: int
    rank: int | None
    own: bool
    name: str
    call: str | None = None
    target: str = ""
    line: str = ""
    collective: str = ""
    handling: str = ""
    others: tuple[str, ...] | None = None
    threads: tuple[str, ...] = ()
    host: str = ""
    sequence: int | None = None
    group: str = ""
    tensors: str = ""

    @property
    def watched(self) -> bool:
        """The process itself was watched: it is not only a dump that shows it."""
        return self.pid != 0


@dataclass(frozen=True, slots=True)
class Stuck:
    """The verdict that a job makes no progress.

    Attributes:
        kind: what holds it up, one of ``KINDS``.
        rank: the rank that holds the others up; None where it is no single one, or the job has one rank only.
        ranks: all ranks that hold the others up, are missing, or were not watched.
        since_s: for how long nothing moved, at least: that is how long it was seen.
        confidence: 0 to 1, judged by the kind.
        chain: from the rank that holds the others up to whoever does not wait for anybody of the job; of several ranks
            one after the other.
        waiting: the ranks that wait for these, and others that stand elsewhere.
        summary: one sentence.
        next_move: what to do.
        refuted_by: what would prove it wrong.
    """

    kind: str
    rank: int | None
    ranks: tuple[int, ...]
    since_s: float
    confidence: float
    chain: tuple[Halt, ...]
    waiting: tuple[Halt, ...]
    summary: Text
    next_move: Text
    refuted_by: Text
