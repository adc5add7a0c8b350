"""Whom a trainer waits for when it waits for its input: loader workers, helper processes, or its own threads.

``SUPPLIER`` is the ordered list of classifiers of one supplier's main thread: the first answer wins, and without one
the supplier is idle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from perfdoctor.attribution.habits import Context
from perfdoctor.attribution.share import SLEEP, Share, Shares, all_of, equally, running, scaled
from perfdoctor.attribution.storage_causes import Writing, blocked_cause
from perfdoctor.causes import (
    DATA_TRANSFER,
    GARBAGE_COLLECTION,
    GIL_CONTENTION,
    INPUT_PREPROCESSING,
    LOCK_CONTENTION,
    NETWORK_READ,
    STORAGE_READ,
    UNATTRIBUTED,
    WORKER_STARTUP,
)
from perfdoctor.knowledge.calls import AWAITS_CONNECTIONS, CHANNELS, EVENT_LOOPS, RUNS_PROCESSES, SLEEPS, WRITES
from perfdoctor.knowledge.threads import COLLECTIVES, NOT_INPUT, PASSING_ON, PINS
from perfdoctor.timeline.code_location import UNKNOWN
from perfdoctor.timeline.job import JobTimeline, Observation
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.threads import ThreadSeries

IDLE: Shares = []
# What a wait for suppliers of which none works goes to.
NOBODY_WORKS = (DATA_TRANSFER, UNATTRIBUTED)


def input_wait(context: Context, trainer: Process, time_ns: int) -> Shares:
    """What the suppliers of a trainer that waits for a batch do at an instant; equal weight to each busy one.

    Where none of them works the batch is on its way between them; in a job without any, it is not known what comes.
    """
    job, classifier = context.job, SupplierClassifier.of(context, trainer.pid)
    if pinning := _pinning(job, trainer.pid, time_ns):
        return pinning
    workers, helpers = job.processes.workers_of(trainer.pid), job.processes.helpers_of(trainer.pid)
    suppliers = _alive(workers, time_ns) or _alive(helpers, time_ns)
    busy = [shares for one in suppliers if (shares := classifier.shares(one, time_ns))]
    if (locked := job.locks.part(trainer.pid, time_ns)) > 0 and busy:
        return _behind_a_lock(busy, locked)
    # A library's own threads decode Parquet, images or text while it waits, and look like those of the intra-op pool;
    # that has nothing to do meanwhile but to spin for a moment, so it is asked last.
    own, pool = _input_threads(job, trainer.pid)
    busy = busy or _work_of(classifier, own, time_ns)
    busy = busy or [shares for one in (*suppliers, trainer) if (shares := _event_loop(job, one.pid, time_ns))]
    busy = busy or _work_of(classifier, pool, time_ns)
    return equally(busy) if busy else [Share(DATA_TRANSFER if workers or helpers else UNATTRIBUTED, 1.0)]


@dataclass(frozen=True)
class SupplierClassifier:
    """Classifies what the suppliers of one trainer do.

    Attributes:
        job: the job.
        writing: what the files of the trainer are written for.
    """

    job: JobTimeline
    writing: Writing

    @classmethod
    def of(cls, context: Context, pid: int) -> SupplierClassifier:
        """That of a trainer."""
        return cls(context.job, context.habits[pid].writing)

    def shares(self, supplier: Process, time_ns: int) -> Shares:
        """What a loader worker or helper process is doing at an instant; ``IDLE`` if nothing."""
        return self._peer_shares(supplier, time_ns) if supplier.channel else self._first(supplier, time_ns)

    def of_servers(self, pid: int, time_ns: int) -> Shares:
        """What processes do that serve one of the job through a connection; ``IDLE`` if nothing.

        They are none of the job's tree, or were started by the trainer and wait on connections themselves.

        Args:
            pid: whom they serve.
            time_ns: the instant.
        """
        children = self.job.processes.children_of(pid)
        peers = [peer for peer in children if peer.channel == "tcp" and peer.alive_at(time_ns)]
        served = equally(filter(None, (self._peer_shares(peer, time_ns) for peer in peers)))
        if served:
            return served
        answers = (self._first(server, time_ns) for server in self._own_servers(pid) if server.alive_at(time_ns))
        # One that waits for the network itself is no more known to be asked than whatever else may be.
        return equally(shares for shares in answers if shares and shares[0].cause != NETWORK_READ)

    def of_children(self, seen: Observation) -> Shares:
        """What processes of a process's own do while it waits for them at a line; ``IDLE`` if nothing."""
        found = []
        for child in self.job.processes.children_of(seen.pid):
            main = self.job.threads.main(child.pid)
            if main is None or not child.alive_at(seen.time_ns):
                continue
            # Where each shard has a process of its own, much of its life is over before it is sampled.
            seen_ns = max(seen.time_ns, int(main.times_ns[0]))
            if shares := self.shares(child, seen_ns):
                found.append([replace(share, line=share.line or seen.location.line) for share in shares])
        return equally(found)

    def _own_servers(self, pid: int) -> list[Process]:
        """Helpers of a trainer that it, or a loader worker of its, may ask through connections."""
        asking = self.job.processes.by_pid[pid]
        if asking.role == "other":
            return []
        helpers = self.job.processes.helpers_of(asking.trainer_pid or pid)
        return [one for one in helpers if not one.channel and self.job.threads.waits_on_network(one.pid)]

    def _first(self, supplier: Process, time_ns: int) -> Shares:
        seen = self.job.observe(supplier, time_ns)
        answers = (classify(self, seen) for classify in SUPPLIER)
        return next((shares for shares in answers if shares is not None), IDLE)

    def _peer_shares(self, peer: Process, time_ns: int) -> Shares:
        """Of a process outside of the job's tree, which is named; before it was found it did as it did then."""
        main = self.job.threads.main(peer.pid)
        if main is None:
            return IDLE
        shares = self._first(peer, max(time_ns, int(main.times_ns[0])))
        name = f"process:{self.job.recording.processes[peer.pid].name} ({peer.pid})"
        return [replace(share, target=share.target or name) for share in shares]


Classifier = Callable[[SupplierClassifier, Observation], Shares | None]


def _alive(processes: list[Process], time_ns: int) -> list[Process]:
    return [process for process in processes if process.alive_at(time_ns)]


def _behind_a_lock(busy: list[Shares], locked: float) -> Shares:
    """Suppliers that queue for a lock: it gets what it costs them together, and their work the rest."""
    every = [share for shares in busy for share in shares]
    working = [share for share in every if share.cause != LOCK_CONTENTION]
    total = sum(share.weight for share in working)
    line = next((share.line for share in every if share.cause == LOCK_CONTENTION), "")
    queueing = Share(LOCK_CONTENTION, locked if total else 1.0, line=line)
    return [queueing, *(scaled(working, (1 - locked) / total) if total else [])]


# --- classifiers of a supplier's main thread -------------------------------------------------------------------------


def _ended(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    if not seen.is_gone:
        return None
    # It was started, but not sampled yet: it is still coming up.
    main = classifier.job.threads.main(seen.pid)
    young = main is None or seen.time_ns < int(main.times_ns[0])
    return [Share(WORKER_STARTUP if seen.process.role == "worker" else INPUT_PREPROCESSING, 1.0)] if young else IDLE


def _starting(_: SupplierClassifier, seen: Observation) -> Shares | None:
    return [Share(WORKER_STARTUP, 1.0)] if seen.location.detail == "worker start" else None


def _computing(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    if not seen.is_runnable:
        return None
    if seen.collecting:
        cause = GARBAGE_COLLECTION
    elif seen.location.detail == "hand over":
        cause = DATA_TRANSFER
    else:
        cause = INPUT_PREPROCESSING
    return running(classifier.job, seen.pid, seen, seen.time_ns, {cause: 1.0}, seen.location.line)


def _blocked(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    if not seen.is_blocked:
        return None
    cause = blocked_cause(classifier.job, seen, seen.time_ns, seen.location, classifier.writing)
    return all_of(cause, seen.location, seen.target)


def _answering(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    """The main thread of a server waits for whoever may come, while other threads answer."""
    if not seen.is_on_network or seen.process.role != "other":
        return None
    job = classifier.job
    busy = ((thread, thread.at(seen.time_ns)) for thread in job.threads.besides_main(seen.pid))
    working = [
        running(
            job, seen.pid, state, seen.time_ns, {INPUT_PREPROCESSING: 1.0}, job.locator.line_of(thread, seen.time_ns)
        )
        for thread, state in busy
        if state.is_busy
    ]
    return equally(working) or None


def _on_network(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    """It waits for another host, or for a server on this one: then for what that does."""
    if not seen.is_on_network:
        return None
    server = classifier.of_servers(seen.pid, seen.time_ns)
    return server or all_of(NETWORK_READ, seen.location, seen.target)


def _in_lock(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    queues = classifier.job.locks.queues(seen.pid, seen.time_ns, seen)
    return all_of(LOCK_CONTENTION, seen.location, seen.target) if queues else None


def _in_file(_: SupplierClassifier, seen: Observation) -> Shares | None:
    """Network and user-space file systems wait in an ordinary sleep."""
    if not seen.target.startswith("file:"):
        return None
    return all_of(DATA_TRANSFER if seen.syscall in WRITES else STORAGE_READ, seen.location, seen.target)


def _asleep(_: SupplierClassifier, seen: Observation) -> Shares | None:
    sleeps = seen.syscall in SLEEPS and seen.location.detail != "worker idle"
    return all_of(INPUT_PREPROCESSING, seen.location, SLEEP) if sleeps else None


def _in_futex(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    """Inside a fetch: its own thread pool computes, its GIL is taken, or a lock of the job's own is."""
    if seen.syscall != "futex" or seen.location.detail != "fetch":
        return None
    for thread in classifier.job.kinds.pool(seen.pid):
        helper = thread.at(seen.time_ns)
        if helper.is_busy:
            causes = {INPUT_PREPROCESSING: 1.0}
            return running(classifier.job, seen.pid, helper, seen.time_ns, causes, seen.location.line)
    if classifier.job.gil.is_taken(seen.pid, seen.time_ns) and not seen.location.waits:
        return all_of(GIL_CONTENTION, seen.location)
    return _event_loop(classifier.job, seen.pid, seen.time_ns) or all_of(LOCK_CONTENTION, seen.location)


def _feeding(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    """The main thread is idle; another thread of the worker may still be pickling and sending a batch.

    Threads of a server outside of the job's tree do its work.
    """
    cause = INPUT_PREPROCESSING if seen.process.channel else DATA_TRANSFER
    for thread in classifier.job.threads.besides_main(seen.pid):
        state = thread.at(seen.time_ns)
        if state.is_busy or state.syscall in ("write", "sendmsg"):
            return running(classifier.job, seen.pid, state, seen.time_ns, {cause: 1.0}, "")
    return None


def _of_children(classifier: SupplierClassifier, seen: Observation) -> Shares | None:
    """It waits for processes of its own, as a shell does for a pipe; at a line, also for one too short to be seen."""
    runs = runs_program(seen) and seen.location.line
    return classifier.of_children(seen) or (all_of(INPUT_PREPROCESSING, seen.location) if runs else None)


def runs_program(seen: Observation) -> bool:
    """Whether a process starts another one, or waits for that one's end or output."""
    talks = seen.location.runs_program and seen.target.startswith(CHANNELS)
    return seen.syscall in RUNS_PROCESSES or talks


SUPPLIER: tuple[Classifier, ...] = (
    _ended,
    _starting,
    _computing,
    _blocked,
    _answering,
    _on_network,
    _in_lock,
    _in_file,
    _asleep,
    _in_futex,
    _feeding,
    _of_children,
)


def _pinning(job: JobTimeline, pid: int, time_ns: int) -> Shares:
    """The thread between workers and trainer that copies batches to page-locked memory; ``IDLE`` if it waits itself."""
    for thread in job.threads.besides_main(pid):
        if job.kinds.pins(thread) and (state := thread.at(time_ns)).is_busy:
            return running(job, pid, state, time_ns, {DATA_TRANSFER: 1.0}, "")
    return IDLE


# --- threads ---------------------------------------------------------------------------------------------------------


def _event_loop(job: JobTimeline, pid: int, time_ns: int) -> Shares:
    """A process that waits for a thread of its own which serves network connections, as clients of object stores do."""
    for thread in job.threads.besides_main(pid):
        if thread.name.startswith(COLLECTIVES):
            continue
        state = thread.at(time_ns)
        if state.syscall in EVENT_LOOPS and state.target.startswith("socket:tcp"):
            line = job.locator.line_of(thread, time_ns)
            return [Share(NETWORK_READ, 1.0, target=state.target, line=line)]
    return IDLE


def _input_threads(job: JobTimeline, pid: int) -> tuple[list[ThreadSeries], list[ThreadSeries]]:
    """A trainer's threads that may prepare its input, and those that look like its intra-op pool's."""
    others = [thread for thread in job.threads.besides_main(pid) if not thread.name.startswith(NOT_INPUT)]
    if job.locator.has_python_threads(pid):
        return others, []
    pool = {thread.tid for thread in job.kinds.pool(pid)}
    return [thread for thread in others if thread.tid not in pool], [thread for thread in others if thread.tid in pool]


def _work_of(classifier: SupplierClassifier, threads: list[ThreadSeries], time_ns: int) -> list[Shares]:
    """What those of a trainer's own threads do that do anything."""
    return [shares for thread in threads if (shares := _thread_shares(classifier, thread, time_ns))]


def _thread_shares(classifier: SupplierClassifier, thread: ThreadSeries, time_ns: int) -> Shares:
    """What one of the trainer's own threads is doing for it; ``IDLE`` if nothing."""
    job, state = classifier.job, thread.at(time_ns)
    # Many threads that take turns with the GIL each have a core for a small part of the time.
    has_turn = state.is_runnable and job.gil.holder_at(thread.pid, time_ns) == thread.tid
    if state.is_busy or has_turn:
        name = job.gil.python_name(thread.tid)
        hands_over = PINS in thread.name or any(one in name for one in PASSING_ON)
        cause = DATA_TRANSFER if hands_over else INPUT_PREPROCESSING
        return running(job, thread.pid, state, time_ns, {cause: 1.0}, job.locator.line_of(thread, time_ns))
    if state.is_blocked:
        return [Share(blocked_cause(job, state, time_ns, UNKNOWN, classifier.writing), 1.0, target=state.target)]
    if state.is_on_network and state.syscall not in AWAITS_CONNECTIONS:
        return [Share(NETWORK_READ, 1.0, target=state.target)]
    return IDLE
