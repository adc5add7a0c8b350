"""Whom a trainer waits for when it waits for its input: workers, helper processes, or its own threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfdoctor.attribution.parts import (
    WRITES,
    Part,
    is_network,
    running_parts,
    scale,
    storage_cause,
)
from perfdoctor.timeline.code_location import UNKNOWN, Place
from perfdoctor.timeline.job import SLEEPS, Scene
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.threads import Moment, Timeline

# Threads of torch's own that serve connections between ranks. Others of a worker are called as it is, pt_data_worker.
_COLLECTIVES = ("pt_gloo", "pt_nccl", "pt_tcpstore", "gloo", "nccl")


def input_parts(scene: Scene, trainer: Process, time_ns: int, saved_paths: Mapping[str, str]) -> list[Part]:
    """What the suppliers of a trainer that waits for a batch are doing at an instant; equal weight to each busy one."""
    suppliers = [worker for worker in scene.roles.workers_of(trainer.pid) if worker.alive_at(time_ns)]
    suppliers = suppliers or [
        helper for helper in scene.roles.helpers_of(trainer.pid) if helper.alive_at(time_ns)
    ]
    busy = [
        parts for supplier in suppliers if (parts := supplier_parts(scene, supplier, time_ns, saved_paths))
    ]
    if (locked := scene.locks.part(trainer.pid, time_ns)) > 0 and busy:
        working = [part for parts in busy for part in parts if part.cause != "cpu.lock_contention"]
        total = sum(part.weight for part in working)
        line = next(
            (part.line for parts in busy for part in parts if part.cause == "cpu.lock_contention"), ""
        )
        queueing = Part("cpu.lock_contention", locked if total else 1.0, line=line)
        return [queueing, *(scale(working, (1 - locked) / total) if total else [])]
    if not busy:
        busy = [
            parts
            for thread in _own_threads(scene, trainer.pid)
            if (parts := _thread_parts(scene, thread, time_ns, saved_paths))
        ]
    busy = busy or [parts for process in (*suppliers, trainer) if (parts := _event_loop(scene, process.pid, time_ns))]
    if not busy:
        # Everybody is idle and yet the trainer waits: the batch is on its way between them.
        return [Part("cpu.data_transfer", 1.0)]
    return [part for parts in busy for part in scale(parts, 1 / len(busy))]


def supplier_parts(
    scene: Scene, supplier: Process, time_ns: int, saved_paths: Mapping[str, str]
) -> list[Part]:
    """What a loader worker is doing at an instant; [] if it is idle."""
    moment = scene.main_at(supplier.pid, time_ns)
    if moment.state in "XZ":
        # It was started, but not looked at yet: it is still coming up.
        timeline = scene.timelines.main(supplier.pid)
        young = timeline is None or time_ns < int(timeline.times_ns[0])
        return [Part("cpu.worker_startup", 1.0)] if young else []
    place = scene.place_at(supplier.pid, time_ns, moment)
    if place.detail == "worker start":
        return [Part("cpu.worker_startup", 1.0)]
    if moment.is_runnable:
        return _computing(scene, supplier.pid, moment, time_ns, place)
    if moment.is_blocked:
        cause = storage_cause(scene, moment, time_ns, place, saved_paths)
        return [Part(cause, 1.0, target=moment.target, line=place.line)]
    parts = _waiting(scene, supplier, moment, time_ns, place)
    if parts or place.detail == "worker idle":
        return parts
    return _of_children(scene, supplier, time_ns, saved_paths, place.line)


def _of_children(
    scene: Scene, supplier: Process, time_ns: int, saved_paths: Mapping[str, str], line: str
) -> list[Part]:
    """A worker that waits for processes of its own at a line: what those do, as a shell's pipe of commands."""
    found = []
    for child in scene.roles.children_of(supplier.pid):
        timeline = scene.timelines.main(child.pid)
        if timeline is None or not child.alive_at(time_ns):
            continue
        # Where each shard has a process of its own, much of its life is over before it is looked at.
        seen_ns = max(time_ns, int(timeline.times_ns[0]))
        if parts := supplier_parts(scene, child, seen_ns, saved_paths):
            found.append([replace(part, line=part.line or line) for part in parts])
    return [part for parts in found for part in scale(parts, 1 / len(found))]


def _computing(scene: Scene, pid: int, moment: Moment, time_ns: int, place: Place) -> list[Part]:
    _, collecting = scene.timelines.interpreter_at(pid, time_ns)
    if collecting:
        cause = "cpu.garbage_collection"
    elif place.detail == "hand over":
        cause = "cpu.data_transfer"
    else:
        cause = "cpu.input_preprocessing"
    return running_parts(scene, pid, moment, time_ns, {cause: 1.0}, place.line)


def _waiting(scene: Scene, supplier: Process, moment: Moment, time_ns: int, place: Place) -> list[Part]:
    """A worker that is asleep: on the network, in a lock, handing over, or idle."""
    if is_network(moment):
        return [Part("io.network_read", 1.0, target=moment.target, line=place.line)]
    if moment.target.startswith("file:") and not scene.locks.queues(supplier.pid, time_ns, moment):
        # Network and user-space file systems wait in an ordinary sleep.
        cause = "cpu.data_transfer" if moment.syscall in WRITES else "io.storage_read"
        return [Part(cause, 1.0, target=moment.target, line=place.line)]
    if scene.locks.queues(supplier.pid, time_ns, moment):
        return [Part("cpu.lock_contention", 1.0, target=moment.target, line=place.line)]
    if moment.syscall in SLEEPS and place.detail != "worker idle":
        return [Part("cpu.input_preprocessing", 1.0, line=place.line)]
    if moment.syscall == "futex" and place.detail == "fetch":
        return _in_futex(scene, supplier.pid, moment, time_ns, place)
    if moment.syscall in ("write", "sendmsg", "sendto"):
        return [Part("cpu.data_transfer", 1.0)]
    return _feeding(scene, supplier.pid, time_ns)


def _in_futex(scene: Scene, pid: int, moment: Moment, time_ns: int, place: Place) -> list[Part]:
    """Inside a fetch: its own thread pool computes, its interpreter lock is taken, or a lock of the job's own is."""
    for thread in scene.pool_threads(pid):
        helper = thread.at(time_ns)
        if helper.is_busy:
            return running_parts(scene, pid, helper, time_ns, {"cpu.input_preprocessing": 1.0}, place.line)
    if scene.timelines.lock_is_taken(pid, time_ns) and not place.waits:
        return [Part("cpu.gil_contention", 1.0, line=place.line)]
    return _event_loop(scene, pid, time_ns) or [Part("cpu.lock_contention", 1.0, line=place.line)]


def _feeding(scene: Scene, pid: int, time_ns: int) -> list[Part]:
    """The main thread is idle; another thread of the worker may still be pickling and sending a batch."""
    for thread in scene.timelines.of(pid):
        if thread.tid == pid:
            continue
        moment = thread.at(time_ns)
        if moment.is_busy or moment.syscall in ("write", "sendmsg"):
            return running_parts(scene, pid, moment, time_ns, {"cpu.data_transfer": 1.0}, "")
    return []


def _event_loop(scene: Scene, pid: int, time_ns: int) -> list[Part]:
    """A process that waits for a thread of its own which serves network connections, as clients of object stores do."""
    for thread in scene.timelines.of(pid):
        if thread.tid == pid or thread.name.startswith(_COLLECTIVES):
            continue
        moment = thread.at(time_ns)
        if (moment.syscall or "").startswith("epoll_") and moment.target.startswith("socket:tcp"):
            return [Part("io.network_read", 1.0, target=moment.target, line=scene.thread_line(thread, time_ns))]
    return []


def _own_threads(scene: Scene, pid: int) -> list[Timeline]:
    """A trainer's threads that may prepare its input: all but the main one and the arithmetic's own."""
    pool = {thread.tid for thread in scene.pool_threads(pid)}
    python = len(scene.stacks.others(pid)) > 0
    return [
        thread
        for thread in scene.timelines.of(pid)
        if thread.tid != pid
        and (python or thread.tid not in pool)
        and not thread.name.startswith(("pt_gloo", "pt_autograd"))
    ]


def _thread_parts(scene: Scene, thread: Timeline, time_ns: int, saved_paths: Mapping[str, str]) -> list[Part]:
    """What one of the trainer's own threads is doing for it."""
    moment = thread.at(time_ns)
    # Many threads that take turns with the interpreter lock each have a core for a small part of the time.
    has_turn = moment.is_runnable and scene.timelines.interpreter_at(thread.pid, time_ns)[0] == thread.tid
    if moment.is_busy or has_turn:
        cause = "cpu.data_transfer" if "pin" in thread.name else "cpu.input_preprocessing"
        line = scene.thread_line(thread, time_ns)
        return running_parts(scene, thread.pid, moment, time_ns, {cause: 1.0}, line)
    if moment.is_blocked:
        return [Part(storage_cause(scene, moment, time_ns, UNKNOWN, saved_paths), 1.0, target=moment.target)]
    if is_network(moment) and moment.syscall not in ("accept", "accept4", "epoll_wait"):
        return [Part("io.network_read", 1.0, target=moment.target)]
    return []
