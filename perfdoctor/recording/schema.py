"""What probes see. Each class here is one row of the table of the same name in a recording.

Times are CLOCK_MONOTONIC nanoseconds. ``None`` means *could not look* and is never a zero.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple, get_args

from perfdoctor.recording.own_source import OwnSource


class Reading(NamedTuple):
    """One number that a probe read.

    Counters (names ending in ``_total``) only grow and are meant to be differenced; everything else is a level.

    Attributes:
        subject: whom the number is about: ``host``, ``pid:1234``, ``core:0``, ``device:vda``, ``interface:eth0``,
            ``gpu:0`` …
        name: what is measured, the unit last, e.g. ``rss_bytes`` or ``throttled_seconds_total``.
    """

    time_ns: int
    probe: str
    subject: str
    name: str
    value: float | None


# A counter of a process that trains: page faults, without a device, of children that have ended and were waited for.
CHILDREN_FAULTS = "ended_children_faults_total"


class Fact(NamedTuple):
    """Something about a subject that does not change while we watch, as text (e.g. ``cpu_model``)."""

    time_ns: int
    probe: str
    subject: str
    name: str
    value: str


# Facts about a process outside of the job's tree: which of the job's waits to read what it sends, and through what
# (``pipe``, ``unix`` or ``tcp``).
SERVES, CHANNEL = "serves", "channel"


class ProcessSeen(NamedTuple):
    """A process of the job, or one that it waits for at the other end of a pipe or a socket.

    Attributes:
        started_ns: when it was started, on the one clock.
        forked: it runs the same program image and command line as its parent (fork without exec).
        uses_torch: libtorch is mapped; None where the maps could not be read.
        command: the command line, secrets masked, joined by spaces.
        environment: JSON object with those variables that matter for performance, secrets masked; ``null`` if
            unreadable.
    """

    time_ns: int
    pid: int
    parent_pid: int
    started_ns: int
    name: str
    forked: bool
    uses_torch: bool | None
    command: str
    environment: str


class ProcessGone(NamedTuple):
    """A process of the job has ended."""

    time_ns: int
    pid: int


class ThreadSeen(NamedTuple):
    """A thread of a process of the job; the main thread's ``tid`` equals its ``pid``."""

    time_ns: int
    tid: int
    pid: int
    name: str


class ThreadSample(NamedTuple):
    """What one thread was doing at one instant.

    Attributes:
        state: as in /proc: R running or runnable, S asleep, D uninterruptible (mostly disk), T stopped, Z dead.
        syscall: name of the system call it is in; ``fault`` if blocked outside of one (a page fault); None if running
            or unreadable.
        target: what the call is about: ``file:/path``, ``pipe``, ``socket:tcp``, ``socket:unix``, ``anon:eventfd`` …,
        "" where unknown.
        run_ns: time on a CPU so far (schedstat).
        delay_ns: time runnable but not on a CPU so far (schedstat).
        voluntary: voluntary context switches so far; None where not read at this tick.
        involuntary: involuntary ones.
        minor_faults: page faults served from memory so far.
        major_faults: page faults that needed a device so far.
    """

    time_ns: int
    tid: int
    state: str
    syscall: str | None
    target: str
    run_ns: int
    delay_ns: int
    voluntary: int | None
    involuntary: int | None
    minor_faults: int | None
    major_faults: int | None


class StackSegment(NamedTuple):
    """Python stacks of a process over some seconds, in the form in which py-spy writes them, whoever read them.

    Attributes:
        time_ns: when the clock of the trace stood at zero.
        error_ns: how much later that may have been.
        until_ns: when the segment had ended.
        trace: chrometrace JSON, as py-spy's, compressed with zlib.
    """

    time_ns: int
    error_ns: int
    until_ns: int
    pid: int
    trace: bytes


class StackMissed(NamedTuple):
    """A sample of the stack of a Python thread, ``ident``, that failed, because it changed while it was read."""

    time_ns: int
    pid: int
    ident: int


class LoaderSample(NamedTuple):
    """How far an iterator of a loader was, when the main thread of a process took a batch from it.

    Attributes:
        iterator: its address, which the next one may have as well.
        given: how many batches it had given before.
    """

    time_ns: int
    pid: int
    iterator: int
    given: int


class PythonThread(NamedTuple):
    """Python's own name and identifier (``threading.get_ident``) of a thread."""

    time_ns: int
    pid: int
    tid: int
    ident: int
    name: str


# So many ``CodeSample`` are taken per second of CPU time in user mode; odd, so as not to march in step with timers.
CODE_FREQUENCY = 99
# A counter of the recorder's: for how long it has stopped threads to take them, where the kernel's profiler is refused.
BY_STOPS = "stopped_threads_seconds_total"


class CodeSample(NamedTuple):
    """Where in machine code a thread was while it was on a CPU in user mode (by stops: or took a page fault there).

    Attributes:
        image: base name of the mapped file, or ``[jit]`` for anonymous executable memory, ``[vdso]`` …
        offset: the instruction's offset in that file (or the address, for anonymous memory), in bytes.
        symbol: mangled function name, "" where the file has no symbol for it.
    """

    time_ns: int
    tid: int
    image: str
    offset: int
    symbol: str


class Symbol(NamedTuple):
    """Name of the function at an offset of an image, looked up once for all samples there."""

    image: str
    offset: int
    symbol: str


class InterpreterSample(NamedTuple):
    """The Python interpreter of one process at one instant.

    Attributes:
        gil_tid: thread that holds the interpreter lock; 0 if nobody does; None if unknown.
        collecting: the cyclic collector is running; None if unknown.
    """

    time_ns: int
    pid: int
    gil_tid: int | None
    collecting: bool | None


class WaitSeen(NamedTuple):
    """A wait of a process's main thread that has lasted for a second or longer, and who could end it.

    Attributes:
        time_ns: when it was looked into.
        call: the system call.
        descriptor: of the process, on which it waits; None for other waits.
        target: as of a ``ThreadSample``.
        others: processes at the other end of a channel, that hold a file's lock, or the child that is waited for, as a
            JSON list; the process itself where only its own threads can end the wait; ``null`` where there is no such
            end, or nobody could look.
        ends_ns: when a sleep ends by itself; None for other waits, or where that cannot be read.
        handling: the type of the exception that the thread handles, "" if none; None where that cannot be read.
    """

    time_ns: int
    pid: int
    call: str
    descriptor: int | None
    target: str
    others: str
    ends_ns: int | None
    handling: str | None


class FlightDump(NamedTuple):
    """What torch's Flight Recorder held of one rank: the collectives that it has called.

    Attributes:
        at_ns: when it was written, on the one clock; not ``time_ns``, for it may lie outside of the time watched.
        written_ns: the same since 1970, which is the recorder's own clock.
        data: as torch wrote it, compressed with zlib.
    """

    at_ns: int
    rank: int
    written_ns: int
    data: bytes


# A fact about a process: who traces it (ptrace(2)), as process id and name.
TRACED_BY = "traced_by"
# Another: the control group with which it is frozen, "" once it is not any more.
FROZEN_IN = "frozen_in"


class TrialSeen(NamedTuple):
    """Steps that a process made on one batch that was kept in memory.

    Attributes:
        steps: how many.
        step_ns: how long one took, as the median of the later half.
    """

    pid: int
    steps: int
    step_ns: int


class Profile(NamedTuple):
    """What torch.profiler wrote about a few steps of one process, after those that were observed.

    Attributes:
        epoch_ns: what the trace's clock (since 1970) shows when the one clock stands at zero.
        error_ns: how far that may be off.
        trace: the Kineto trace, JSON, compressed with gzip.
    """

    pid: int
    epoch_ns: int
    error_ns: int
    trace: bytes


class TraceCost(NamedTuple):
    """What it cost a process to be traced.

    Attributes:
        way: from outside ``gdb``, ``remote_exec`` or ``kineto``; ``diagnose()`` where it asked for it itself.
        traced_ns: how long the profiler recorded.
        stopped_ns: for how long the process stood still at most, so that it could be entered.
        held_ns: for how long the training waited at most while the profiler started, stopped and wrote; None where it
            did not: Kineto does so in threads of its own.
    """

    pid: int
    way: str
    traced_ns: int
    stopped_ns: int
    held_ns: int | None


class Mark(NamedTuple):
    """A border that the training process marked from inside.

    Attributes:
        edge: ``begin``, ``end`` or ``point``; with ``device`` before it, the time is that at which an accelerator's
            stream came to it.
        what: ``data``, ``loader start``, ``forward``, ``loss``, ``backward``, ``optimizer``, ``gradient sync``;
            ``collector`` (a pause of the cyclic collector); ``scope`` (the user's ``with``), ``step`` (a step has
            ended), ``observed`` (steps count from here, or until here); or ``own: NAME`` for a phase of the user's.
        value: of a forward or loss mark, 1 if gradients are recorded plus 2 if the module is in training mode; of a
            data mark 1 if there are workers, 2 if the loader had no more; of a scope's end 1 if it held more than one
            step; of a pause the collector's generation; of a device's step 1 if no timed step ended there.
    """

    time_ns: int
    pid: int
    edge: str
    what: str
    value: int


BACKWARD_CALL, OPTIMIZER_CALL, LOST_CALLS = "backward", "optimizer", "lost"


class CountedCall(NamedTuple):
    """Counted from outside: a thread begins a backward pass, or an optimizer's step; or some were lost after that."""

    time_ns: int
    pid: int
    tid: int
    what: str


class SerialMark(NamedTuple):
    """A border in steps that were made after all else was seen: no phase begins there before the last one has ended.

    Attributes:
        at_ns: when, on the one clock; not ``time_ns``, for it is no part of the time that was watched.
        what: as of a mark; ``serialised`` (such steps from here to there), ``rank wait`` (for the other ranks).
    """

    at_ns: int
    pid: int
    edge: str
    what: str
    value: int


class Unavailable(NamedTuple):
    """A probe, or a part of one, that could not look.

    Attributes:
        reason: one sentence.
        enable: what makes it work, a command where there is one.
    """

    probe: str
    reason: str
    enable: str


# How the kind of an event ends by which a probe, whose name comes first, says what it saw more rarely or not at all.
THINNED = " thinned"


class Event(NamedTuple):
    """Something that happened to the recording itself: a lowered rate, what was thinned, the job's end."""

    time_ns: int
    kind: str
    text: str


Sample = (
    Reading | Fact | ProcessSeen | ProcessGone | ThreadSeen | ThreadSample | StackSegment | StackMissed | LoaderSample
    | PythonThread | CodeSample | Symbol | InterpreterSample | Mark | CountedCall | SerialMark | Profile | TraceCost
    | TrialSeen | OwnSource | WaitSeen | FlightDump | Unavailable | Event
)  # fmt: skip

TABLES: tuple[type[Sample], ...] = get_args(Sample)  # of a recording: one for each kind of sample


def core_list(text: str) -> tuple[int, ...]:
    """Numbers meant by a list such as ``0-3,8``."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def core_text(cores: Iterable[int]) -> str:
    """The list notation of some core numbers, the reverse of ``core_list``."""
    runs = groupby(enumerate(sorted(set(cores))), key=lambda pair: pair[1] - pair[0])
    bounds = [[core for _, core in run] for _, run in runs]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in bounds)
