"""What one instant of a trainer's main thread goes to: waits are followed across threads, workers and ranks.

``TRAINER`` is the ordered list of classifiers of an observation: each returns the shares of the instant, or None where
it has nothing to say, and the first answer wins. What no classifier knows is unattributed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perfdoctor.attribution.collectives import AllRanks, CollectiveWaits, SeenRank
from perfdoctor.attribution.habits import LOADER_WAITS, Context
from perfdoctor.attribution.machine_code_by_phase import phase_of
from perfdoctor.attribution.running_trainer import running_trainer
from perfdoctor.attribution.share import (
    DEVICE_WAIT,
    SLEEP,
    Share,
    Shares,
    all_of,
    arithmetic,
    at_location,
    behind_gil,
    running,
    scaled,
    unattributed,
)
from perfdoctor.attribution.storage_causes import WRITTEN, blocked_cause, purpose
from perfdoctor.attribution.suppliers import NOBODY_WORKS, SupplierClassifier, input_wait, runs_program
from perfdoctor.causes import (
    BANDWIDTH,
    DATA_PARALLEL,
    EVALUATION,
    INPUT_PREPROCESSING,
    LOCK_CONTENTION,
    LOG_WRITE,
    MEMORY_PRESSURE,
    MODEL_COMPUTE,
    NETWORK_READ,
    PYTHON_OVERHEAD,
    STORAGE_READ,
    UNOBSERVED_RANK,
    WORKER_STARTUP,
)
from perfdoctor.knowledge.calls import (
    BLOCKING_WAITS,
    CHANNELS,
    DRIVER_FILES,
    EVENT_LOOPS,
    SENDS,
    SLEEPS,
    WAITED_ON,
    WRITES,
)
from perfdoctor.timeline.code_location import AFTERWARDS, POOL, PREPARES, TRAINING_PHASES, CodeLocation, is_beside
from perfdoctor.timeline.job import Observation
from perfdoctor.timeline.locator import is_within
from perfdoctor.timeline.processes import Process


class JobClassifier:
    """Classifies the observations of a job's trainers, on each of its hosts and on one clock.

    Attributes:
        hosts: a classifier for each.
        ranks: the trainers of all hosts together.
    """

    def __init__(self, hosts: Sequence[Context]) -> None:
        waits = [CollectiveWaits(context.job) for context in hosts]
        self.ranks = AllRanks(waits)
        self.hosts = [
            TrainerClassifier(self, number, context, collectives)
            for number, (context, collectives) in enumerate(zip(hosts, waits, strict=True))
        ]


@dataclass(frozen=True)
class TrainerClassifier:
    """Classifies the observations of the trainers on one host.

    Attributes:
        job: of which it is a part.
        host: the number of that host.
        context: what is known of the job there.
        collectives: whether its trainers wait for other ranks.
    """

    job: JobClassifier
    host: int
    context: Context
    collectives: CollectiveWaits

    def shares(self, seen: Observation) -> Shares:
        """The shares of an instant, weights summing to 1."""
        return self._first(TRAINER, seen)

    def of_late_rank(self, seen: Observation) -> Shares:
        """The same for a rank that others wait for: whom it waits for itself is not followed any further."""
        return self._first(LATE_RANK, seen)

    def _first(self, classifiers: tuple[Classifier, ...], seen: Observation) -> Shares:
        answers = (classify(self, seen) for classify in classifiers)
        shares = next((shares for shares in answers if shares is not None), unattributed(seen.location))
        if seen.location.evaluates:
            return [_of_evaluation(share) for share in shares]
        beside = is_beside(seen.location) and self.context.habits[seen.pid].computes_beside
        return [_of_own_code(share) for share in shares] if beside else shares


def _of_evaluation(share: Share) -> Share:
    """What calling the model takes in a pass that does not train; what else holds it up keeps its cause."""
    in_model = share.rank is None and share.cause in (MODEL_COMPUTE, PYTHON_OVERHEAD)
    return replace(share, cause=EVALUATION) if in_model else share


def _of_own_code(share: Share) -> Share:
    """Arithmetic that is none of the model's: its code calls for it, beside the training."""
    return replace(share, cause=PYTHON_OVERHEAD, beside=True) if share.cause == MODEL_COMPUTE else share


Classifier = Callable[[TrainerClassifier, Observation], Shares | None]


def _ended(_: TrainerClassifier, seen: Observation) -> Shares | None:
    return unattributed(seen.location) if seen.is_gone else None


def _in_data_parallel(_: TrainerClassifier, seen: Observation) -> Shares | None:
    return all_of(DATA_PARALLEL, seen.location) if seen.location.detail == "data parallel" else None


def _in_driver(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """A call on a file of a GPU's driver allocates or frees memory in a job that does so; else it waits for the GPU."""
    if not seen.target.startswith(DRIVER_FILES):
        return None
    allocates = classifier.context.habits[seen.pid].allocates
    waits = seen.target.startswith(WAITED_ON) or not (allocates or seen.is_blocked)
    return all_of(at_location(DEVICE_WAIT, seen.location) if waits else MEMORY_PRESSURE, seen.location)


def _compiling(_: TrainerClassifier, seen: Observation) -> Shares | None:
    """torch.compile waits for compilers that it starts as processes, or for its own pool of them."""
    return all_of(PYTHON_OVERHEAD, seen.location) if seen.location.detail == "compile" else None


def _running(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    return running_trainer(classifier.context, seen) if seen.is_runnable else None


def _blocked(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    if not seen.is_blocked:
        return None
    writing = classifier.context.habits[seen.pid].writing
    cause = blocked_cause(classifier.context.job, seen, seen.time_ns, seen.location, writing)
    return all_of(cause, seen.location, seen.target)


def _starting_workers(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    detail = seen.location.detail
    # Whoever ends a pool may wait for what its processes are still at.
    if detail == POOL and (working := SupplierClassifier.of(classifier.context, seen.pid).of_children(seen)):
        return working
    return all_of(WORKER_STARTUP, seen.location) if detail in ("loader start", POOL) else None


def _in_loader(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """It waits for a batch: for workers that come up, or for what they do."""
    if seen.location.detail not in LOADER_WAITS:
        return None
    context = classifier.context
    if is_within(context.habits[seen.pid].restarts, seen.time_ns):
        return all_of(WORKER_STARTUP, seen.location)
    prepared = bool(context.job.processes.workers_of(seen.pid))
    return [replace(share, awaited=prepared) for share in input_wait(context, seen.process, seen.time_ns)]


def _may_compute(location: CodeLocation) -> bool:
    return location.phase in TRAINING_PHASES or location.detail in (PREPARES, AFTERWARDS)


def _for_pool(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """The intra-op thread pool's barrier: one of its threads computes."""
    if seen.syscall != "futex" or not _may_compute(seen.location):
        return None
    job = classifier.context.job
    for thread in job.kinds.pool(seen.pid):
        helper = thread.at(seen.time_ns)
        if helper.is_busy:
            causes = {arithmetic(seen.location): 1.0}
            return running(job, seen.pid, helper, seen.time_ns, causes, seen.location.line, in_step=True)
    return None


def _for_gil(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    if seen.syscall != "futex" or seen.location.waits:
        return None
    job = classifier.context.job
    if not job.gil.is_awaited(seen.pid, seen.time_ns):
        return None
    cause, line = behind_gil(job, seen.pid, seen.time_ns)
    return [Share(cause, 1.0, line=line)]


def _for_device(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """It sleeps in code that waits for nobody else: for its GPU, or for autograd's thread that waits for that."""
    if not classifier.context.job.gpus.used_by(seen.pid) or seen.syscall not in BLOCKING_WAITS:
        return None
    location = seen.location
    if location.waits or location.phase == "data" or location.phase in WRITTEN:
        return None
    if location.detail == "collective" and seen.syscall == "futex":
        return None  # gloo's: NCCL's are waited for awake, or polled
    if seen.syscall in SLEEPS and location.phase not in TRAINING_PHASES:
        return None
    if seen.target.startswith(("file:", "pipe", "socket")):
        return None
    if _waits_awake(classifier.context, seen) and seen.syscall == "futex":
        return input_wait(classifier.context, seen.process, seen.time_ns)
    return all_of(at_location(DEVICE_WAIT, location), location)


def _waits_awake(context: Context, seen: Observation) -> bool:
    """Whether it spins where it waits for the device, and is asleep for something else: a batch that is on its way.

    Stacks are sampled less often than states, and the nearest one may be of the code before or after the loader.
    """
    with_loader = bool(context.job.processes.workers_of(seen.pid))
    return with_loader and phase_of(seen.location) in context.habits[seen.pid].waits_awake


def _in_collective(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """Whoever is not in the collective is the culprit; if all are, it is communication."""
    if not classifier.collectives.is_waited_in(seen):
        return None
    whole, waiting, here = classifier.job, SeenRank(classifier.host, seen), classifier.context.job
    others = whole.ranks.others(waiting)
    late = whole.ranks.late(others)
    if not late:
        unseen = len(others) + 1 < here.processes.world_size
        return all_of(UNOBSERVED_RANK if unseen else BANDWIDTH, seen.location)
    exchanging = here.kinds.exchange_at(seen.time_ns)
    found: Shares = []
    for other in late:
        mutual = whole.ranks.mutual(waiting, other) if exchanging else 0.0
        theirs = whole.hosts[other.host].of_late_rank(other.seen)
        shares = [*scaled(all_of(BANDWIDTH, seen.location), mutual), *scaled(theirs, 1 - mutual)]
        found += [_in_rank(share, other.seen.process) for share in scaled(shares, 1 / len(late))]
    return [share for share in found if share.weight > 0]


def _in_rank(share: Share, rank: Process) -> Share:
    """A share that lies in another rank; an exchange lies in none of them."""
    return share if share.cause == BANDWIDTH else replace(share, rank=rank.rank)


def _in_collective_too(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    return unattributed(seen.location) if classifier.collectives.is_waited_in(seen) else None


def _in_futex(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """Neither pool, GIL nor collective: writing that a thread does for it, a queue, or a lock of the job's own."""
    location, context = seen.location, classifier.context
    if seen.syscall != "futex":
        return None
    if location.phase in WRITTEN:
        return all_of(WRITTEN[location.phase], location)
    if location.phase != "data" and context.job.locks.queues(seen.pid, seen.time_ns, seen):
        return all_of(LOCK_CONTENTION, location)
    if location.phase == "data" or location.waits:
        shares = input_wait(context, seen.process, seen.time_ns)
        if location.phase == "data" or shares[0].cause not in NOBODY_WORKS:
            return shares
    if location.phase in TRAINING_PHASES:
        return all_of(MODEL_COMPUTE, location)
    if location.waits:
        unseen = context.habits[seen.pid].unseen_threads
        return all_of(purpose(location), location) if unseen else unattributed(location)
    known = context.job.locator.is_known(seen.pid)
    return all_of(LOCK_CONTENTION, location) if known else unattributed(location)


def _on_network(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """It waits for another host, or for a server on this one: then for what that does."""
    if not seen.is_on_network or _sends(seen):
        return None
    if seen.location.phase == "logging" or seen.location.tells_results:
        return all_of(LOG_WRITE, seen.location, seen.target)
    server = SupplierClassifier.of(classifier.context, seen.pid).of_servers(seen.pid, seen.time_ns)
    return server or all_of(NETWORK_READ, seen.location, seen.target)


def _sends(seen: Observation) -> bool:
    """Asleep until the other side takes what it is sent, which is nothing that a step is made from."""
    return seen.is_on_network and seen.syscall in SENDS and seen.location.phase != "data"


def _in_file_lock(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    queues = classifier.context.job.locks.queues(seen.pid, seen.time_ns, seen)
    return all_of(LOCK_CONTENTION, seen.location, seen.target) if queues else None


def _writing(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """Asleep in a write: a full pipe, terminal or connection takes log lines, a file what its bytes say."""
    if seen.syscall not in WRITES and not _sends(seen):
        return None
    if seen.target.startswith("file:"):
        cause = classifier.context.habits[seen.pid].writing.cause(seen.target, seen.location)
    else:
        cause = WRITTEN.get(seen.location.phase, LOG_WRITE)
    return all_of(cause, seen.location, seen.target)


def _in_file(_: TrainerClassifier, seen: Observation) -> Shares | None:
    return all_of(STORAGE_READ, seen.location, seen.target) if seen.target.startswith("file:") else None


def _asleep(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """A step that pauses in code of the user's own, outside of model, loss and optimizer, waits for its input.

    Polling for what others prepare looks like that, so whoever of these works has the time; and else rate limits and
    retries do. Loader workers work ahead meanwhile: who waits for them is in the loader.
    """
    if seen.syscall not in SLEEPS:
        return None
    context = classifier.context
    if _is_between(classifier, seen) and not context.job.processes.workers_of(seen.pid):
        shares = input_wait(context, seen.process, seen.time_ns)
        if shares[0].cause not in NOBODY_WORKS:
            return shares
    return _paused(classifier, seen)


def _paused(classifier: TrainerClassifier, seen: Observation) -> Shares:
    """It lets a set time pass."""
    between = _is_between(classifier, seen)
    return all_of(INPUT_PREPROCESSING, seen.location, SLEEP) if between else unattributed(seen.location)


def _is_between(classifier: TrainerClassifier, seen: Observation) -> bool:
    """Whether it is known to be in code of the user's own, outside of model, loss and optimizer."""
    return seen.location.phase in ("data", "other") and classifier.context.job.locator.is_known(seen.pid)


def _in_program(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """It starts a process, or waits for one's end or output: work at that line, but for what that waits for itself.

    Many such processes are over before they are sampled.
    """
    if not runs_program(seen):
        return None
    shares = SupplierClassifier.of(classifier.context, seen.pid).of_children(seen)
    work = all_of(purpose(seen.location), seen.location)
    waited = [share for share in shares if share.cause != INPUT_PREPROCESSING]
    return [*waited, *scaled(work, 1 - sum(share.weight for share in waited))]


def _for_process(classifier: TrainerClassifier, seen: Observation) -> Shares | None:
    """It waits for another process of its own, a decoder or a pool for instance."""
    if not seen.target.startswith(CHANNELS):
        return None
    shares = input_wait(classifier.context, seen.process, seen.time_ns)
    if len(shares) > 1 or shares[0].cause not in NOBODY_WORKS or seen.location.phase == "data":
        return shares
    return _paused(classifier, seen) if _awaits_timer(seen) else unattributed(seen.location)


def _awaits_timer(seen: Observation) -> bool:
    """Of an event loop (asyncio's) that nobody works for: it watches no socket but the pair that it is woken by."""
    return seen.syscall in EVENT_LOOPS and seen.target == "socket:unix"


TRAINER: tuple[Classifier, ...] = (
    _ended,
    _in_data_parallel,
    _in_driver,
    _running,
    _blocked,
    _compiling,
    _starting_workers,
    _in_loader,
    _for_pool,
    _for_gil,
    _for_device,
    _in_collective,
    _in_futex,
    _on_network,
    _in_file_lock,
    _writing,
    _in_file,
    _asleep,
    _in_program,
    _for_process,
)
LATE_RANK = tuple(_in_collective_too if classify is _in_collective else classify for classify in TRAINER)
