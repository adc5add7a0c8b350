"""What classifiers know of a job besides the instant that they are asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.attribution.forks import Forks, read_forks
from perfdoctor.attribution.machine_code_by_phase import phase_of
from perfdoctor.attribution.machine_code_samples import computes_beside
from perfdoctor.attribution.mix_of_phases import CodeMix, read_code_mix
from perfdoctor.attribution.share import DEVICE_WAIT, IN_DRIVER
from perfdoctor.attribution.storage_causes import Writing, read_writing
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import CODE_FREQUENCY
from perfdoctor.timeline.code_location import ALLOCATOR, HOOK, PREPARES, TRAINING_PHASES, is_beside
from perfdoctor.timeline.job import JobTimeline, Observation
from perfdoctor.timeline.locator import Spans
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.stand_ins import ENOUGH, drawn
from perfdoctor.timeline.threads import Floats, ThreadSeries

# The trainer waits for a batch that loader workers prepare, or takes it over.
LOADER_WAITS = ("loader wait", "hand over")
_IN_LOADER = (*LOADER_WAITS, "loader start", "sampling")


@dataclass(frozen=True)
class Habits:
    """What a trainer does over the whole recording.

    Attributes:
        code: what its main thread computes in each phase.
        writing: what its files are written for.
        restarts: spans in which it waits for a first batch, from the start of new workers until it leaves the loader.
        forks: what it forks, and what that costs it afterwards.
        gil_switching: the part of its running time that switching the GIL takes.
        allocates: calls of a GPU's driver give back memory and ask for it again: there is no more of it, or the trainer
            empties PyTorch's cache.
        waits_awake: phases outside of passes (``phase_of``) in which it spins while it waits for its GPU.
        taking_apart: of the time in which it prepares a batch, the part that is for the objects that it came as.
        computes_beside: what it computes below the model's passes is for somebody else than the training.
        unseen_threads: while it waits, threads of its own work that live too short to be sampled.
    """

    code: CodeMix
    writing: Writing
    restarts: Spans = ()
    forks: tuple[Forks, ...] = ()
    gil_switching: float = 0.0
    allocates: bool = False
    waits_awake: frozenset[str] = frozenset()
    taking_apart: float = 0.0
    computes_beside: bool = False
    unseen_threads: bool = False


@dataclass(frozen=True)
class Context:
    """A job, and what its trainers do over the whole recording.

    Attributes:
        habits: by a trainer's process id.
    """

    job: JobTimeline
    habits: Mapping[int, Habits]


def read_context(job: JobTimeline) -> Context:
    """Reads what classifiers need to know."""
    return Context(job, {trainer.pid: _habits(job, trainer) for trainer in job.processes.trainers})


def _habits(job: JobTimeline, trainer: Process) -> Habits:
    allocates, switching = _allocates(job, trainer), gil_switching(job, trainer.pid)
    in_kernel = max(0.0, _kernel_time_beyond_usual(job, trainer.pid) - switching)
    allocating = max(0.0, in_kernel - _fresh_pages(job, trainer.pid)) if allocates else None
    code, seen = read_code_mix(job, trainer.pid, in_kernel, allocating), _seen_training(job, trainer)
    return Habits(
        code=code,
        writing=read_writing(job, trainer),
        restarts=_restart_waits(job, trainer),
        forks=read_forks(job, trainer),
        gil_switching=switching,
        allocates=allocates,
        waits_awake=_waits_awake(job, trainer, code),
        taking_apart=_taking_apart(seen),
        computes_beside=_computes_beside(job, trainer, seen),
        unseen_threads=_has_unseen_threads(job, trainer, seen),
    )


def _has_unseen_threads(job: JobTimeline, trainer: Process, observed: Sequence[Observation]) -> bool:
    """Whether a trainer's CPU time that no thread of it was seen to use is most of the time in which it waits for some.

    A pool of threads that is made for each batch is such: the kernel counts threads that have ended as well.
    """
    threads = job.threads.of(trainer.pid)
    waits = sum(not one.is_runnable and one.syscall == "futex" and one.location.waits for one in observed)
    rates = (job.readings.rate(f"pid:{trainer.pid}", f"{mode}_seconds_total") for mode in ("user", "system"))
    spans = [thread.counted_ns[[0, -1]] for thread in threads if len(thread.counted_ns)]
    if not waits or not spans:
        return False
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    seen_ns = sum(float(thread.run_ns[-1] - thread.run_ns[0]) for thread in threads if len(thread.run_ns))
    unseen = sum(rate or 0.0 for rate in rates) - seen_ns / max(1.0, float(end - begin))
    return unseen >= thresholds.MOSTLY * waits / len(observed)


def _computes_beside(job: JobTimeline, trainer: Process, seen: Sequence[Observation]) -> bool:
    """Whether a trainer computes for long below the model's passes, for no backward pass.

    What a training needs there, averages of weights or clipped gradients, visits each weight as the optimizer's step
    does, and takes no longer. What does is for a reader: metrics of each step, copies of weights. Where no optimizer of
    torch's was seen, the job may update its weights there itself, but not in hooks that only read out.
    """
    if job.gpus.used_by(trainer.pid):
        return False
    running = [one.location for one in seen if one.is_runnable and not one.collecting]
    beside = list(filter(is_beside, running))
    updates = sum(location.phase == "optimizer" for location in running)
    much = len(beside) >= max(thresholds.MIN_SHARE * len(seen), thresholds.LIKE_UPDATES * updates)
    in_hooks = sum(location.detail == HOOK for location in beside) >= thresholds.MOSTLY * len(beside)
    return much and (updates > 0 or in_hooks) and computes_beside(job, trainer.pid)


def _seen_training(job: JobTimeline, trainer: Process) -> list[Observation]:
    """What a trainer does at instants that stand for all of its training."""
    begin, end = job.training_span(trainer)
    times = [time for time in job.threads.main_times(trainer.pid) if begin <= time <= end]
    return [job.observe(trainer, time) for time in drawn(times, ENOUGH)]


def _taking_apart(seen: Iterable[Observation]) -> float:
    """What nested objects cost a trainer after they were unpickled, as part of the time in which it prepares batches.

    Tensors and arrays are taken over in no time. Where unpickling takes a good part of it, batches come as many small
    objects, and whatever makes tensors of them visits each once more: that takes about as long, and goes with them.
    """
    running = [one.location.detail for one in seen if one.is_runnable]
    unpickling, preparing = running.count("hand over"), running.count(PREPARES)
    least = max(thresholds.CODE_SAMPLES, thresholds.UNPICKLES_OBJECTS * len(running))
    if not preparing or unpickling < least:
        return 0.0
    return min(1.0, unpickling / preparing)


def _waits_awake(job: JobTimeline, trainer: Process, code: CodeMix) -> frozenset[str]:
    """Phases in which a trainer mostly runs, and its machine code mostly waits for the device."""
    waits = {phase: mix.get(DEVICE_WAIT, 0.0) + mix.get(IN_DRIVER, 0.0) for phase, mix in code.by_phase.items()}
    spins = {phase for phase, part in waits.items() if part >= thresholds.MOSTLY}
    spins -= TRAINING_PHASES
    if not spins or not job.gpus.used_by(trainer.pid):
        return frozenset()
    seen = [job.observe(trainer, time) for time in job.threads.main_times(trainer.pid, most=ENOUGH)]
    found = {phase: [one.is_runnable for one in seen if phase_of(one.location) == phase] for phase in spins}
    return frozenset(phase for phase, runs in found.items() if sum(runs) >= thresholds.MOSTLY * len(runs) > 0)


def _allocates(job: JobTimeline, trainer: Process) -> bool:
    if not job.gpus.used_by(trainer.pid):
        return False
    if job.gpus.memory_used(trainer.pid) >= thresholds.FULL_GPU:
        return True
    seen = _seen_training(job, trainer)
    empties = sum(one.location.detail == ALLOCATOR for one in seen)
    return empties >= thresholds.ALLOCATES * len(seen) > 0


def _kernel_time_beyond_usual(job: JobTimeline, pid: int) -> float:
    """A host of a GPU launches and waits in user mode; the driver allocates and frees memory in the kernel."""
    return max(0.0, kernel_time(job, pid, *job.span) - thresholds.USUAL_KERNEL_TIME)


def _restart_waits(job: JobTimeline, trainer: Process) -> Spans:
    # What a worker starts for a sample or a shard is its own affair.
    suppliers = [*job.processes.workers_of(trainer.pid), *job.processes.children_of(trainer.pid)]
    starts = sorted(process.started_ns for process in suppliers if process.started_ns > job.span[0])
    spans: list[tuple[int, int]] = []
    for start in starts:
        if spans and start < spans[-1][1]:
            continue
        # A sample may miss that it left the loader for a moment; its marks do not.
        steps = job.steps.get(trainer.pid)
        end = _seen_outside(job, trainer, start) if steps is None else steps.first_batch_ns(start)
        spans.append((start, end))
    return tuple(spans)


def _seen_outside(job: JobTimeline, trainer: Process, start_ns: int) -> int:
    """Where a trainer was first sampled outside of its loader; what it does without a stack is not known."""
    main = job.threads.main(trainer.pid)
    end = start_ns
    times = () if main is None else main.times_ns[np.searchsorted(main.times_ns, start_ns) :].tolist()
    for time in times:
        end = time
        location = job.observe(trainer, time).location
        if location.line and location.detail not in _IN_LOADER:
            break
    return end


def gil_switching(job: JobTimeline, pid: int) -> float:
    """Of the time in which a trainer's main thread runs, the part that goes into switching the GIL.

    A thread that calls many short operators gives the GIL away and takes it back for each. While another Python thread
    wants it as well, each time means two system calls and a change of threads: CPU time of this thread, not its work.
    That part is the time in the kernel (all CPU time, without what was sampled in user mode), as far as the thread's
    voluntary switches explain it; 0 where nobody contends for the GIL or the machine code was not sampled.
    """
    main = job.threads.main(pid)
    if main is None or not _contended(job, pid):
        return 0.0
    counted = np.flatnonzero(~np.isnan(main.voluntary))
    if len(counted) < 2:
        return 0.0
    start, end = int(main.counted_ns[counted[0]]), int(main.counted_ns[counted[-1]])
    switches = _for_each_second(main, main.voluntary)
    return min(kernel_time(job, pid, start, end), switches * thresholds.GIL_SWITCH_S)


def _fresh_pages(job: JobTimeline, pid: int) -> float:
    """Of the time in which a trainer's main thread runs, the part in which the kernel clears new pages for it."""
    main = job.threads.main(pid)
    return 0.0 if main is None else _for_each_second(main, main.minor_faults) * job.minor_fault_s


def _for_each_second(thread: ThreadSeries, count: Floats) -> float:
    """How much a thread's counter grows in a second for which it runs; 0 where it was not read."""
    counted = np.flatnonzero(~np.isnan(count))
    if len(counted) < 2:
        return 0.0
    first, last = counted[0], counted[-1]
    running_s = float(thread.run_ns[last] - thread.run_ns[first]) / NS_PER_S
    return float(count[last] - count[first]) / running_s if running_s else 0.0


def kernel_time(job: JobTimeline, pid: int, start_ns: int, end_ns: int) -> float:
    """Of the time in a span in which a trainer's main thread runs, the part in the kernel.

    That is all CPU time without what was sampled in user mode; 0 where samples do not tell that.
    """
    main = job.threads.main(pid)
    if main is None:
        return 0.0
    running_s = main.use(start_ns, end_ns)[0] * (end_ns - start_ns) / NS_PER_S
    sampled = len(job.code.of(pid).within(start_ns, end_ns))
    if not sampled or job.code.by_stops or running_s <= 0:
        return 0.0
    return max(0.0, 1 - sampled / CODE_FREQUENCY / running_s)


def _contended(job: JobTimeline, pid: int) -> bool:
    times = job.threads.main_times(pid, most=ENOUGH)
    return sum(job.gil.is_taken(pid, time) for time in times) >= thresholds.CONTENDED_GIL * len(times) > 0
