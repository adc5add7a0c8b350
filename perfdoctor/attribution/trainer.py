"""What one instant of a trainer's main thread is to be blamed on, waits followed across threads, workers and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perfdoctor.amounts import Amounts
from perfdoctor.attribution.code_counts import SURE_DELAY, pool_delay
from perfdoctor.attribution.code_mix import SPIN, CodeMix
from perfdoctor.attribution.gpu import Gpus
from perfdoctor.attribution.input_wait import input_parts
from perfdoctor.attribution.mutual_waits import Turns
from perfdoctor.attribution.parts import (
    SENDS,
    WRITES,
    WRITTEN,
    Part,
    is_network,
    running_parts,
    scale,
    storage_cause,
    unattributed,
)
from perfdoctor.timeline.code_location import PREPARES, TRAINING_PHASES, Place
from perfdoctor.timeline.job import SLEEPS, Scene
from perfdoctor.timeline.locks import LOCK_CALLS
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.threads import Moment

# Every rank is in the collective; whether bytes or messages take the time is told at the end, from the whole recording.
COMMUNICATION = "communication.bandwidth"
LOADER_WAITS = ("loader wait", "hand over")


@dataclass
class Blame:
    """Answers for one recording.

    Attributes:
        mixes: per trainer, what its main thread computes in each phase.
        saved_paths: targets that saving or logging code of a library was seen to write, with the cause; "" for all
        others.
        handovers: per trainer, the part of its running time that handing over the interpreter lock takes.
        turns: whether ranks wait for each other by turns.
    """

    scene: Scene
    mixes: Mapping[int, CodeMix]
    saved_paths: Mapping[int, Mapping[str, str]]
    restarts: Mapping[int, list[tuple[int, int]]] = field(default_factory=dict)
    handovers: Mapping[int, float] = field(default_factory=dict)
    gpus: Gpus | None = None
    turns: Turns = field(init=False)

    def __post_init__(self) -> None:
        self.turns = Turns(self.scene.timelines, self.scene.roles.trainers, self.in_collective)

    def parts(self, trainer: Process, time_ns: int) -> list[Part]:
        """The parts of an instant, weights summing to 1."""
        parts = self._host_parts(trainer, time_ns, follow_ranks=True)
        return parts if self.gpus is None else self.gpus.share_out(parts, time_ns)

    def _host_parts(self, trainer: Process, time_ns: int, *, follow_ranks: bool) -> list[Part]:
        moment = self.scene.main_at(trainer.pid, time_ns)
        place = self.scene.place_at(trainer.pid, time_ns, moment)
        if moment.state in "XZ":
            return unattributed(place)
        if place.detail == "data parallel":
            return [Part("communication.data_parallel", 1.0, line=place.line)]
        if moment.is_runnable:
            return self._running(trainer, moment, place, time_ns)
        if moment.is_blocked:
            cause = storage_cause(self.scene, moment, time_ns, place, self.saved_paths[trainer.pid])
            return [Part(cause, 1.0, target=moment.target, line=place.line)]
        return self._waiting(trainer, moment, place, time_ns, follow_ranks)

    def in_collective(self, trainer: Process, time_ns: int) -> bool:
        """Whether a trainer waits for other ranks at an instant."""
        moment = self.scene.main_at(trainer.pid, time_ns)
        if moment.state in "RDXZ":
            # A collective's own arithmetic runs on the main thread for moments only.
            place = self.scene.place_at(trainer.pid, time_ns, moment)
            return moment.state == "R" and place.detail == "collective"
        place = self.scene.place_at(trainer.pid, time_ns, moment)
        return self._is_collective_wait(trainer, moment, place, time_ns)

    def _running(self, trainer: Process, moment: Moment, place: Place, time_ns: int) -> list[Part]:
        collecting = self.scene.collecting_at(trainer.pid, time_ns)
        causes: Mapping[str, float]
        queued: Mapping[str, float] = {}
        if collecting and place.detail not in LOADER_WAITS:
            # While a batch is unpickled, its many objects are what the collector is called for.
            causes = {"cpu.garbage_collection": 1.0}
        elif place.phase in WRITTEN:
            causes = {WRITTEN[place.phase]: 1.0}
        elif place.detail == "loader start":
            causes = {"cpu.worker_startup": 1.0}
        elif place.detail in LOADER_WAITS:
            causes = {"cpu.data_transfer": 1.0}
        elif place.phase == "data":
            causes = {"cpu.input_preprocessing": 1.0}
        elif place.detail == "compile":
            causes = {"cpu.python_overhead": 1.0}
        elif place.detail == "collective":
            causes = {COMMUNICATION: 1.0}
        else:
            causes, queued = self._at_barrier(trainer, place, time_ns)
        parts = running_parts(self.scene, trainer.pid, moment, time_ns, {**causes, **queued}, place.line)
        # Whoever has the CPU that a barrier waits for is not at this line.
        parts = [replace(part, line="") if part.cause in queued else part for part in parts]
        handing = self.handovers.get(trainer.pid, 0.0)
        return [*scale(parts, 1 - handing), Part("cpu.gil_contention", handing, line=place.line)] if handing else parts

    def _at_barrier(
        self, trainer: Process, place: Place, time_ns: int
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Spinning at a barrier is waiting for the pool's other threads: for those that compute, or that get no CPU.

        Returns:
            What the thread computes, and why those that it waits for get no CPU: cause to weight, summing to 1.
        """
        lacking = pool_delay(self.scene, trainer.pid, time_ns)
        mix = self.mixes[trainer.pid].causes(place, held_up=lacking >= SURE_DELAY)
        spin = mix.get(SPIN, 0.0)
        if not spin:
            return mix, {}
        # The parts of a pool are alike: nearly all spinning is for a thread that got no CPU, if there is one.
        delay = min(1.0, lacking / SURE_DELAY)
        why = self.scene.occupancy.delay_parts(time_ns)
        causes = Amounts({cause: weight for cause, weight in mix.items() if cause != SPIN})
        causes[_arithmetic(place)] += spin * (1 - delay * sum(why.values()))
        queued = Amounts({cause: spin * delay * weight for cause, weight in why.items() if weight > 0})
        for cause in set(queued) & set(causes):
            queued[cause] += causes.pop(cause)
        return causes, queued

    def _waiting(
        self, trainer: Process, moment: Moment, place: Place, time_ns: int, follow_ranks: bool
    ) -> list[Part]:
        scene, saved = self.scene, self.saved_paths[trainer.pid]
        if place.detail == "loader start":
            return [Part("cpu.worker_startup", 1.0, line=place.line)]
        if place.detail in LOADER_WAITS:
            if self._waits_for_restart(trainer, time_ns):
                return [Part("cpu.worker_startup", 1.0, line=place.line)]
            prepared = bool(scene.roles.workers_of(trainer.pid))
            return [replace(part, awaited=prepared) for part in input_parts(scene, trainer, time_ns, saved)]
        if moment.syscall == "futex":
            return self._in_futex(trainer, moment, place, time_ns, follow_ranks)
        if self._is_collective_wait(trainer, moment, place, time_ns):
            return self._follow_ranks(trainer, time_ns) if follow_ranks else unattributed(place)
        if is_network(moment):
            if moment.syscall in SENDS and place.phase != "data":
                # Asleep until the other side takes what it is sent, which is nothing that a step is made from.
                return [self._writing(moment, place, saved)]
            cause = "io.log_write" if place.phase == "logging" else "io.network_read"
            return [Part(cause, 1.0, target=moment.target, line=place.line)]
        if moment.syscall in LOCK_CALLS:
            return [Part("cpu.lock_contention", 1.0, target=moment.target, line=place.line)]
        if moment.syscall in WRITES:
            return [self._writing(moment, place, saved)]
        if moment.target.startswith("file:"):
            return [Part("io.storage_read", 1.0, target=moment.target, line=place.line)]
        if moment.syscall in SLEEPS:
            # A step that pauses in code of the user's own, outside of model, loss and optimizer, waits for what it is
            # about to work on: that is how rate limits, retries and polling for input look.
            between = place.phase in ("data", "other") and scene.has_places(trainer.pid)
            return [Part("cpu.input_preprocessing", 1.0, line=place.line)] if between else unattributed(place)
        if moment.target.startswith(("pipe", "socket", "anon")) or moment.syscall in ("wait4", "waitid"):
            # It waits for another process of its own, a decoder or a pool for instance.
            parts = input_parts(scene, trainer, time_ns, saved)
            idle = len(parts) == 1 and parts[0].cause == "cpu.data_transfer"
            return unattributed(place) if idle and place.phase != "data" else parts
        return unattributed(place)

    def _writing(self, moment: Moment, place: Place, saved: Mapping[str, str]) -> Part:
        """Asleep in a write: a full pipe, terminal or connection takes log lines, a file what its bytes tell."""
        of_bytes = saved.get(moment.target, saved[""]) if moment.target.startswith("file:") else "io.log_write"
        cause = WRITTEN.get(place.phase, of_bytes)
        return Part(cause, 1.0, target=moment.target, line=place.line)

    def _in_futex(
        self, trainer: Process, moment: Moment, place: Place, time_ns: int, follow_ranks: bool
    ) -> list[Part]:
        """A futex may be the arithmetic's barrier, the interpreter lock, a collective, a queue or a lock of the job."""
        scene = self.scene
        for thread in scene.pool_threads(trainer.pid):
            helper = thread.at(time_ns)
            computes = place.phase in TRAINING_PHASES or place.detail == PREPARES
            if computes and helper.is_busy:
                return running_parts(scene, trainer.pid, helper, time_ns, {_arithmetic(place): 1.0}, place.line)
        if scene.timelines.lock_is_taken(trainer.pid, time_ns) and not place.waits:
            return [Part("cpu.gil_contention", 1.0, line=place.line)]
        if self._is_collective_wait(trainer, moment, place, time_ns):
            return self._follow_ranks(trainer, time_ns) if follow_ranks else unattributed(place)
        if place.phase in WRITTEN:
            return [Part(WRITTEN[place.phase], 1.0, line=place.line)]
        if place.phase == "data" or place.waits:
            parts = input_parts(scene, trainer, time_ns, self.saved_paths[trainer.pid])
            if place.phase == "data" or parts[0].cause != "cpu.data_transfer":
                return parts
        if place.phase in TRAINING_PHASES:
            return [Part("cpu.model_compute", 1.0, line=place.line)]
        known = scene.has_places(trainer.pid) and not place.waits
        return [Part("cpu.lock_contention", 1.0, line=place.line)] if known else unattributed(place)

    def _is_collective_wait(self, trainer: Process, moment: Moment, place: Place, time_ns: int) -> bool:
        if self.scene.roles.world_size < 2 or moment.is_runnable or moment.is_blocked:
            return False
        if place.detail == "collective":
            return True
        if moment.syscall != "futex" or place.waits:
            return False
        # DistributedDataParallel waits inside backward (and forward, for buffers) without a frame of its own.
        if place.phase in ("backward", "forward", "optimizer"):
            return not self._pool_works(trainer, time_ns)
        # Where steps are shorter than the time between two stacks, the code that goes with a wait is not known; but if
        # nobody in this process can hold a lock, the other ranks are who else it waits for.
        return place.phase == "other" and not self._threads_may_hold_it_up(trainer, time_ns)

    def _threads_may_hold_it_up(self, trainer: Process, time_ns: int) -> bool:
        """Whether another Python thread of the process does anything but wait in a futex too."""
        python = self.scene.own_threads.python(trainer.pid)
        others = (thread for thread in self.scene.timelines.of(trainer.pid) if thread.tid != trainer.pid)
        moments = (thread.at(time_ns) for thread in others if thread.tid in python)
        return any(moment.state not in "XZ" and moment.syscall != "futex" for moment in moments)

    def _pool_works(self, trainer: Process, time_ns: int) -> bool:
        return any(thread.at(time_ns).is_busy for thread in self.scene.pool_threads(trainer.pid))

    def _follow_ranks(self, waiting: Process, time_ns: int) -> list[Part]:
        """Whoever is not in the collective is the culprit; if all are, it is communication."""
        others = [
            trainer
            for trainer in self.scene.roles.trainers
            if trainer.pid != waiting.pid and trainer.alive_at(time_ns)
        ]
        late = [other for other in others if not self.in_collective(other, time_ns)]
        if not late:
            unseen = len(others) + 1 < self.scene.roles.world_size
            return [Part("communication.unattributed_wait" if unseen else COMMUNICATION, 1.0)]
        moving = self.scene.exchanges_at(time_ns)
        found: list[Part] = []
        for other in late:
            parts = self._host_parts(other, time_ns, follow_ranks=False)
            bytes_too = self.turns.mutual(waiting, other) if moving else 0.0
            parts = [Part(COMMUNICATION, bytes_too), *scale(parts, 1 - bytes_too)]
            found += [_in_rank(part, other.rank) for part in scale(parts, 1 / len(late))]
        return [part for part in found if part.weight > 0]

    def _waits_for_restart(self, trainer: Process, time_ns: int) -> bool:
        """Whether the trainer has been waiting since before some of its workers were started."""
        return any(start <= time_ns < end for start, end in self.restarts.get(trainer.pid, ()))


def _arithmetic(place: Place) -> str:
    """What arithmetic on tensors counts for in a place."""
    return "cpu.input_preprocessing" if place.detail == PREPARES else "cpu.model_compute"


def _in_rank(part: Part, rank: int | None) -> Part:
    """A part that lies in another rank; an exchange lies in none of them."""
    return part if part.cause == COMMUNICATION else replace(part, rank=rank)
