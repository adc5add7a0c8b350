"""In what a process sits that does not move: an ordered list of classifiers of its standing, the first answer wins.

What waits for others of the job, for ranks, workers or children, is kept apart from what waits for nobody of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from perfdoctor.knowledge.calls import AWAITS_PROCESSES, FILE_LOCKS
from perfdoctor.knowledge.frames import Frame, in_loader, is_own
from perfdoctor.knowledge.halts import (
    BEGINS,
    CONTROL_FLOW,
    DEBUGGERS,
    EXITS,
    IN_COLLECTIVES,
    STORE_THREAD,
    TERMINALS,
)
from perfdoctor.recording.schema import TRACED_BY
from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import FROZEN, Halt
from perfdoctor.stuck.gpu_waits import waits_for_gpu
from perfdoctor.stuck.standing import Span, Standing, sleeps
from perfdoctor.timeline.code_location import EXCHANGING_PHASES, asks_for_file_lock, awaits_ranks_to_come, own_line
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.threads import TRACED

# Of what waits for others of the job; whom it waits for is asked next.
COLLECTIVE, LOADER = "collective", "loader"
FOR_RANKS = (COLLECTIVE, kinds.RENDEZVOUS, kinds.GPU_WAIT)
# What an exception's handler, or the interpreter's exit, does not tell more of.
_TOLD = (*FOR_RANKS, LOADER, kinds.STOPPED, kinds.DEBUGGER)
# What only somebody outside of the job can end: whoever has stopped it, debugs it, or is to type.
ENDLESS = (kinds.STOPPED, kinds.DEBUGGER, kinds.TERMINAL)
# Whom to name first where several hold the others up: what is surest.
_SUREST = (
    kinds.STOPPED, kinds.DEBUGGER, kinds.TERMINAL, kinds.EXCEPTION, kinds.EXIT, kinds.FILE_LOCK, kinds.GIL, kinds.LOCK,
    kinds.STORAGE, kinds.PIPE, kinds.SOCKET, kinds.CHILD, LOADER, kinds.SLEEP, kinds.LOOP,
)  # fmt: skip
_STOPPED = "T"
_GIL_ASKED = 20  # instants of a span at which its holder is looked up


def place_by_sureness(kind: str) -> int:
    """How sure it is that who sits in this holds up those that wait for it; 0 is surest."""
    return _SUREST.index(kind) if kind in _SUREST else len(_SUREST)


def sits_in(job: JobTimeline, standing: Standing, span: Span) -> str:
    """The kind of wait, as in ``Halt``, whatever for."""
    answers = (classify(job, standing, span) for classify in CLASSIFIERS)
    return next((kind for kind in answers if kind), kinds.UNKNOWN)


def halt_of(job: JobTimeline, standing: Standing, rank: int | None, *, own: bool, span: Span) -> Halt:
    """Where a process stands, in full.

    Args:
        job: the job.
        standing: the process over the span.
        rank: of the trainer that it is, or belongs to.
        own: whether it is the trainer itself.
        span: over which nothing moved.
    """
    process, wait = standing.process, standing.wait
    kind = sits_in(job, standing, span)
    handling = (wait.handling or "") if wait is not None else ""
    handling = "" if handling in CONTROL_FLOW else handling
    if kind not in _TOLD and handling:
        kind = kinds.EXCEPTION
    elif kind not in _TOLD and _is_exiting(standing.stack):
        kind = kinds.EXIT
    others = None if wait is None else json.loads(wait.others)
    tracer = _tracer(job, process.pid) if kind == kinds.DEBUGGER else ""
    return Halt(
        kind=kind,
        pid=process.pid,
        rank=rank,
        own=own,
        name=job.recording.processes[process.pid].name,
        call=standing.call,
        target=f"{FROZEN}{standing.frozen_in}" if standing.frozen_in else standing.target,
        line=standing.location.line,
        collective=_collective(standing) if kind in FOR_RANKS else "",
        handling=handling,
        others=(tracer,) if tracer else None if others is None else tuple(_named(job, pid) for pid in others),
        threads=_other_lines(job, process.pid, standing.location.line),
    )


def _named(job: JobTimeline, pid: int) -> str:
    seen = job.recording.processes.get(pid)
    return f"{seen.name} ({pid})" if seen is not None else f"process {pid}"


def _other_lines(job: JobTimeline, pid: int, line: str) -> tuple[str, ...]:
    """Where in the job's own code the other Python threads of a process were last."""
    lasts = [job.stacks.frames[one.stacks[-1]] for one in job.stacks.of_others(pid) if one.stacks[-1] >= 0]
    return tuple(dict.fromkeys(found for stack in lasts if (found := own_line(stack)) and found != line))


def _tracer(job: JobTimeline, pid: int) -> str:
    found = job.recording.facts.get((f"pid:{pid}", TRACED_BY), "")
    number, _, name = found.partition(" ")
    return f"{name} ({number})" if found else ""


def _is_exiting(stack: tuple[Frame, ...]) -> bool:
    """Whether the interpreter is about to end: it waits for threads, or calls what was to be called at exit."""
    if not stack:
        return False
    return stack[0].simple_name not in BEGINS or any(row.matches(frame) for row in EXITS for frame in stack)


# --- classifiers -----------------------------------------------------------------------------------------------------


def _stopped(job: JobTimeline, standing: Standing, _: Span) -> str:
    if standing.state == TRACED or (standing.state == _STOPPED and _tracer(job, standing.process.pid)):
        return kinds.DEBUGGER
    return kinds.STOPPED if standing.state == _STOPPED or standing.frozen_in else ""


def _debugged(_: JobTimeline, standing: Standing, __: Span) -> str:
    return kinds.DEBUGGER if any(row.matches(frame) for row in DEBUGGERS for frame in standing.stack) else ""


def _in_collective(job: JobTimeline, standing: Standing, _: Span) -> str:
    """In a call of torch.distributed, or where DistributedDataParallel waits: in a backward pass without a call."""
    if awaits_ranks_to_come(standing.stack):
        return kinds.RENDEZVOUS
    if standing.location.detail == "collective":
        return COLLECTIVE
    leaf_is_own = bool(standing.stack) and is_own(standing.stack[-1])
    waits = standing.state == "S" and standing.call in (None, "futex") and not standing.location.waits
    in_step = standing.location.phase in EXCHANGING_PHASES
    return COLLECTIVE if waits and in_step and not leaf_is_own and job.processes.world_size > 1 else ""


def _for_gpu(job: JobTimeline, standing: Standing, span: Span) -> str:
    return kinds.GPU_WAIT if waits_for_gpu(job, standing.process.pid, span) else ""


def _in_store(job: JobTimeline, standing: Standing, _: Span) -> str:
    """In a connection to the store of torch.distributed, which one rank keeps for all."""
    others = json.loads(standing.wait.others) if standing.wait is not None else None
    threads = (thread for pid in others or () for thread in job.threads.of(pid))
    on_socket = standing.target.startswith("socket:tcp")
    return kinds.RENDEZVOUS if on_socket and any(one.name.startswith(STORE_THREAD) for one in threads) else ""


def _for_batch(_: JobTimeline, standing: Standing, __: Span) -> str:
    return LOADER if standing.location.phase == "data" and any(map(in_loader, standing.stack)) else ""


def _for_child(_: JobTimeline, standing: Standing, __: Span) -> str:
    return kinds.CHILD if standing.call in AWAITS_PROCESSES else ""


def _for_file_lock(_: JobTimeline, standing: Standing, __: Span) -> str:
    asks = sleeps(standing) and asks_for_file_lock(standing.stack)
    return kinds.FILE_LOCK if standing.call in FILE_LOCKS or asks else ""


def _on_descriptor(_: JobTimeline, standing: Standing, __: Span) -> str:
    target = standing.target
    if target.startswith(TERMINALS):
        return kinds.TERMINAL
    if standing.call == "connect" or target.startswith("socket"):
        return kinds.SOCKET
    if target.startswith("pipe"):
        return kinds.PIPE
    return ""


def _on_storage(_: JobTimeline, standing: Standing, __: Span) -> str:
    return (
        kinds.STORAGE
        if standing.state == "D" or standing.call == "fault" or standing.target.startswith("file:")
        else ""
    )


def _asleep(_: JobTimeline, standing: Standing, __: Span) -> str:
    return kinds.SLEEP if sleeps(standing) else ""


def _for_gil(job: JobTimeline, standing: Standing, span: Span) -> str:
    """Another thread has had the GIL all the time."""
    pid = standing.process.pid
    step = max(1, (span[1] - span[0]) // _GIL_ASKED)
    holders = {job.gil.holder_at(pid, time) for time in range(*span, step)}
    held = len(holders) == 1 and holders.isdisjoint((None, 0, job.threads.main_tid(pid)))
    return kinds.GIL if held and standing.state == "S" else ""


def _in_futex(_: JobTimeline, standing: Standing, __: Span) -> str:
    return kinds.LOCK if standing.call == "futex" else ""


def _running(_: JobTimeline, standing: Standing, __: Span) -> str:
    return kinds.LOOP if standing.state == "R" else ""


CLASSIFIERS: tuple[Callable[[JobTimeline, Standing, Span], str], ...] = (
    _stopped,
    _debugged,
    _in_store,
    _in_collective,
    _for_gpu,
    _for_gil,
    _for_batch,
    _for_child,
    _for_file_lock,
    _on_descriptor,
    _on_storage,
    _asleep,
    _in_futex,
    _running,
)


def _collective(standing: Standing) -> str:
    """The function of torch.distributed that the job's own code has called; that of a step where it called none."""
    for frame in standing.stack:
        if any(row.matches(frame) for row in IN_COLLECTIVES):
            return frame.simple_name
    return standing.location.phase if standing.location.phase in EXCHANGING_PHASES else ""
