"""How the job is set up already, so that no advice is given that is followed already.

==================== ====================================================================================
setting              is
==================== ====================================================================================
trainers             number of trainers
workers              loader workers of one trainer, on average over the time watched, rounded
cores                cores that the job may use: the smaller of affinity mask and CPU quota
physical_cores       of these, as many as there are of hardware: half of the mask, where each has two threads; absent
                     where each has one
host_cores           logical cores of the host
affinity_cores       on how many cores a trainer computes, by the masks of its threads
quota_cores          CPU quota; absent where there is none
memory_bytes         memory of the host
kernel               of the host, as ``uname -r`` reports it
memory_limit_bytes   tightest memory limit of the control groups; absent where there is none
trainer_threads      threads of one trainer, sleeping ones included
worker_threads       threads of one loader worker
ranks_started        ``by the script``, where that starts its ranks itself
start_method         how workers are started: ``fork`` or ``spawn`` (a fork server's workers count as spawned)
pin_thread           ``yes`` if a thread of a trainer pins batches, ``no`` if none was seen
gpus                 number of GPUs that the job uses
gpu_name             model of the first of them
compute_capability   of the first of them, e.g. 8.0
cpu_model            as in /proc/cpuinfo
mount./data          file system at a mount point; the word ``network`` follows where it is one
disk.nvme0n1         model of the block device under a mount, if it has one; ``disk_kind.nvme0n1``: ``rotating`` or
                     ``solid state``
loader               ``yes`` if the trainer uses a DataLoader, ``no`` if its stacks show none
parallel             how ranks share the model: ``ddp``, ``fsdp``, ``fully_shard``, ``deepspeed``, ``megatron``, or
                     by ``tensor`` parallelism alone; ``no`` if stacks show none of them
pipeline             ``yes`` if ranks send messages to single other ones, as the stages of a pipeline do
dataset              ``tensors`` if samples are rows of tensors in memory (``TensorDataset``); ``arrow`` if of Hugging
                     Face datasets, ``arrow rows by number`` if those are shuffled or selected rows of a table;
                     ``rows of a table`` if they are taken out of a data frame
optimizer            how it runs over the parameters: ``single``, ``multi`` (foreach) or ``fused``
loop                 whose training loop it is: ``transformers``, ``lightning``
evaluation_loop      in whose loop it evaluates, likewise
others               what else frames of libraries show: ``perfdoctor.knowledge.libraries.USES``; ``update`` is taken
                     from the source where too few stacks were seen
helpers              how other processes are asked: ``for the model`` or ``for input``
pinned_at            where the source confines a process to some cores
threads_set          how many threads compute as the source sets it; ``yes`` where that is no plain number
pads_all             where the source pads every text to one length
exchange_policy      where it says in which numbers ranks exchange, or with which hook
trains_part          where the optimizer is given a part of the model, and nothing keeps gradients from the rest
unused_pass          where a module is called whose gradients are cleared before its optimizer steps, or that has none
untrained            the module that has none, and is told to evaluate
made_of_state        where the loop makes batches of what it changes itself
pool_at              where the trainer makes pools of processes, or ends them, where it has no loader workers
per_pass_at          where it prepares what all steps of a pass over the data share, most of what it prepares
accumulates_at       the loop whose backward passes make one update
updates_when         in which rounds of it the optimizer steps, where that is not behind it
exchanges_again      that each of them exchanges gradients: the same loop
saves_when           in which rounds of a loop the job saves; so ``logs_when`` and ``evaluates_when``
evaluates_at         where the job's own code calls for its evaluation
backend              of the collectives: ``nccl`` or ``gloo``
env.OMP_NUM_THREADS  an environment variable of the first trainer, secrets masked
==================== ====================================================================================

What is not known is absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, in_loader, is_import, reads_tensors
from perfdoctor.knowledge.launchers import SPAWNED
from perfdoctor.knowledge.libraries import (
    ADDED_UP,
    COMM_HOOK,
    DDP,
    EXCHANGE_POLICIES,
    FSDP,
    FULLY_SHARD,
    GIVES_TYPES,
    HOLDS_BACK,
    PADS_ALL,
    PINS,
    THREADS,
    UPDATES,
    USES,
)
from perfdoctor.knowledge.threads import BACKENDS, PINNING
from perfdoctor.metrics.exchanges import read_exchanges
from perfdoctor.metrics.gpu import job_gpus
from perfdoctor.metrics.helper_processes import how_asked
from perfdoctor.metrics.names import Trainers
from perfdoctor.metrics.own_source import (
    accumulating_loop,
    evaluated_at,
    made_of_state,
    pool_made_at,
    prepared_per_pass,
    untrained_module,
    unused_pass,
    when_done,
)
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import ProcessSeen
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.readings import Readings

if TYPE_CHECKING:
    from perfdoctor.recording.own_source import SourceCall
    from perfdoctor.recording.reader import Recording
    from perfdoctor.timeline.affinity import Affinity
    from perfdoctor.timeline.job import JobTimeline
    from perfdoctor.timeline.threads import JobThreads, ThreadSeries

Settings = dict[str, str | float]
# What is often done in some rounds of a loop only, and which locations belong to it.
_DONE_AT_TIMES: Mapping[str, Callable[[CodeLocation], bool]] = MappingProxyType({
    "saves_when": lambda location: location.phase == "saving",
    "logs_when": lambda location: location.phase == "logging" or location.tells_results,
    "evaluates_when": lambda location: location.evaluates,
})  # fmt: skip


def read_settings(recording: Recording, threads: JobThreads, affinity: Affinity, trainers: Trainers) -> Settings:
    """Reads the settings of a job from its recording.

    Args:
        recording: what was seen.
        threads: its threads.
        affinity: on which cores these may run.
        trainers: its trainers and their workers.
    """
    readings = Readings(recording)
    settings: Settings = {"trainers": float(len(trainers))}
    settings.update(_cores(readings, affinity, trainers))
    settings.update(_workers(recording, trainers))
    settings.update(_threads(threads, recording.end_ns, trainers))
    settings.update(_gpus(readings))
    settings.update(_mounts(readings))
    settings.update(_disks(readings))
    if kernel := recording.meta.get("kernel"):
        settings["kernel"] = kernel
    settings.update(_environment(recording, trainers))
    return settings


def read_code_settings(job: JobTimeline) -> Settings:
    """What frames, threads and the source show of a job's code."""
    pids = {trainer.pid for trainer in job.processes.trainers}
    workers = {worker.pid for pid in pids for worker in job.processes.workers_of(pid)}
    stacks, beside = list(_stacks(job, pids)), list(_stacks(job, workers))
    enough = len(stacks) >= thresholds.SEEN_STACKS
    # What a module imports while it is imported itself is not used for that.
    found = _uses({frame for stack in {*stacks, *beside} if not is_import(stack) for frame in stack})
    if has_loader(job, pids):
        found["loader"] = "yes"
    elif enough:
        found["loader"] = "no"
    if enough:
        if "parallel" not in found and (activations := _activations(job, pids, found)):
            found["activations"] = activations
        found.setdefault("parallel", "no")
    in_source = _said_in_source(job.source_calls)
    if enough:  # its frames would have been seen
        in_source.pop("update", None)
    found = {**in_source, **found}
    if "loop" not in found and (accumulated := accumulating_loop(job.stacks, job.source_loops, job.source_rounds)):
        found["accumulates_at"] = accumulated.loop
        if accumulated.when:
            found["updates_when"] = accumulated.when
        if _exchanges_each(job, found):
            found["exchanges_again"] = accumulated.loop
    for name, what in _DONE_AT_TIMES.items():
        if when := when_done(job.stacks, job.source_rounds, what):
            found[name] = when
    if place := evaluated_at(job.stacks):
        found["evaluates_at"] = place
    if place := made_of_state(job.stacks, job.source_states):
        found["made_of_state"] = place
    if not workers and (place := pool_made_at(job.stacks)):
        found["pool_at"] = place
    if place := prepared_per_pass(job.stacks):
        found["per_pass_at"] = place
    if (asked := how_asked(job)) is not None:
        found["helpers"] = asked
    if any(reads_tensors(stack) for stack in [*stacks, *beside]):
        found["dataset"] = "tensors"
    names = [thread.name for thread in job.threads.by_tid.values() if thread.pid in pids]
    for backend, prefix in BACKENDS.items():
        if "backend" not in found and any(name.startswith(prefix) for name in names):
            found["backend"] = backend
    if pids & job.gpus.processes:
        found["on_gpu"] = "yes"
    return found


def _activations(job: JobTimeline, pids: set[int], found: Settings) -> str:
    exchanged = read_exchanges(job.stacks, pids).activations
    return exchanged or (ADDED_UP if "tensor_parallel" in found else "")


def _exchanges_each(job: JobTimeline, found: Settings) -> bool:
    """Whether ranks share the gradients that a job accumulates, and no call keeps its passes from exchanging."""
    held_back = any(call.callee in HOLDS_BACK for call in job.source_calls)
    return not held_back and found.get("parallel") in (DDP, FSDP, FULLY_SHARD)


def _said_in_source(calls: Sequence[SourceCall]) -> Settings:
    """What calls in the job's own source show, as they are written."""
    found: Settings = {}
    makes = [call for call in calls if call.callee in UPDATES]
    updates = {UPDATES[call.callee] for call in makes}
    if len(updates) == 1:
        found["update"] = updates.pop()
    if len(makes) == 1 and makes[0].is_unused:
        found["trains_part"] = makes[0].place
    if setting := [call.text for call in calls if call.callee in THREADS]:
        found["threads_set"] = _largest_number(setting)
    if pin := next((call for call in calls if call.callee in PINS), None):
        found["pinned_at"] = pin.place
    if padding := next((call for call in calls if PADS_ALL.search(call.text)), None):
        found["pads_all"] = padding.place
    policies = (call for call in calls if call.callee in (*EXCHANGE_POLICIES, COMM_HOOK))
    if policy := next((call for call in policies if GIVES_TYPES.search(call.text)), None):
        found["exchange_policy"] = policy.place
    if (call := unused_pass(calls)) is not None:
        found["unused_pass"] = call.place
    if module := untrained_module(calls):
        found["untrained"] = module
    return found


def _largest_number(calls: Sequence[str]) -> str:
    """The largest plain number with which any of these calls is made; ``yes`` where one takes another value."""
    numbers = [int(found[1]) for text in calls if (found := re.search(r"\(\s*(\d+)\s*\)", text))]
    return str(max(numbers)) if len(numbers) == len(calls) else "yes"


def _uses(frames: Iterable[Frame]) -> Settings:
    """What frames of libraries show; each function of a file is asked for once."""
    seen = {(frame.file, frame.function): frame for frame in frames}
    found: Settings = {}
    for use in USES:
        if use.setting not in found and any(map(use.shows, seen.values())):
            found[use.setting] = use.value
    return found


def read_versions(recording: Recording, trainers: Iterable[int]) -> dict[str, str]:
    """The versions of Python and torch, each in the first trainer of which it was read."""
    found: dict[str, str] = {}
    for pid in trainers:
        for what in ("python", "torch"):
            version = recording.facts.get((f"pid:{pid}", f"{what}_version"))
            if version is not None:
                found.setdefault(what, version)
    return found


def has_loader(job: JobTimeline, pids: set[int]) -> bool:
    """Whether any of some trainers gets its input from a DataLoader: it has workers, or was seen in its code."""
    if any(job.processes.workers_of(pid) for pid in pids):
        return True
    return any(in_loader(frame) for stack in set(_stacks(job, pids)) for frame in stack)


def _stacks(job: JobTimeline, pids: set[int]) -> Iterator[tuple[Frame, ...]]:
    """The stacks of some processes' main threads, each as often as it was seen anew."""
    for series in job.stacks.series:
        if series.pid in pids and series.is_main:
            yield from (job.stacks.frames[number] for number in series.stacks.tolist() if number >= 0)


def _cores(readings: Readings, affinity: Affinity, trainers: Trainers) -> Settings:
    found: Settings = {}
    pids = [pid for pid, _ in trainers]
    seen = [len(affinity.of_process(pid)) or readings.maximum(f"pid:{pid}", "allowed_cores") for pid in pids]
    masks = [float(mask) for mask in seen if mask is not None]
    quotas = [quota for group in readings.subjects("cgroup:") if (quota := readings.mean(group, "quota_cores"))]
    limits = [limit for group in readings.subjects("cgroup:") if (limit := readings.mean(group, "limit_bytes"))]
    usable = readings.maximum("job", "usable_cores")
    if usable is not None:
        usable = affinity.cores_of_job(usable)
    host = _number(readings.fact("host", "logical_cores"))
    if masks:
        found["affinity_cores"] = max(masks)
    if quotas:
        found["quota_cores"] = min(quotas)
    if usable is None:
        usable = min([*masks[:1], *quotas], default=None)
    if usable is not None:
        found["cores"] = usable
        threads = _number(readings.fact("host", "threads_per_core")) or 1.0
        if threads > 1:
            found["physical_cores"] = min(usable, max([*masks, usable]) / threads)
    if host is not None:
        found["host_cores"] = host
    if limits:
        found["memory_limit_bytes"] = min(limits)
    if (memory := readings.maximum("host", "memory_total_bytes")) is not None:
        found["memory_bytes"] = memory
    model = readings.fact("host", "cpu_model")
    return found if model is None else {**found, "cpu_model": model}


def _workers(recording: Recording, trainers: Trainers) -> Settings:
    """Worker lives by the time watched; how they were started."""
    watched = recording.end_ns - recording.start_ns
    seen, ended_ns = recording.processes, recording.ended_ns
    if not trainers or not seen or watched < thresholds.SHORTEST_RATE_S * NS_PER_S:
        return {}
    mine = [seen[pid] for _, workers in trainers for pid in workers if pid in seen]
    lived = sum(
        ended_ns.get(worker.pid, recording.end_ns) - max(worker.started_ns, recording.start_ns) for worker in mine
    )
    found: Settings = {"workers": float(round(lived / watched / len(trainers)))}
    ranks = [seen[pid] for pid, _ in trainers if pid in seen]
    if sum(one.forked or SPAWNED in one.command for one in ranks) >= len(ranks) - 1 > 0:
        found["ranks_started"] = "by the script"  # which may be the first of them itself
    if mine:
        found["start_method"] = "fork" if sum(worker.forked for worker in mine) > len(mine) / 2 else "spawn"
    return found


def _threads(threads: JobThreads, end_ns: int, trainers: Trainers) -> Settings:
    if not threads.by_tid or not trainers:
        return {}
    found: Settings = {}
    mains = [pid for pid, _ in trainers]
    workers = [worker for _, pids in trainers for worker in pids]
    for name, pids in (("trainer_threads", mains), ("worker_threads", workers)):
        if counts := [count for pid in pids if (count := _threads_at_a_time(threads.of(pid), end_ns))]:
            found[name] = float(median(counts))
    pins = any(thread.name == PINNING for pid in mains for thread in threads.of(pid))
    found["pin_thread"] = "yes" if pins else "no"
    return found


def _threads_at_a_time(threads: Iterable[ThreadSeries], end_ns: int) -> int:
    """How many threads a process had while it lived, on average: some are started again and again."""
    lived = [thread.lived_ns(end_ns) for thread in threads]
    return round(sum(lived) / max(lived)) if any(lived) else len(lived)


def _gpus(readings: Readings) -> Settings:
    gpus = job_gpus(readings)
    if not gpus:
        return {}
    found: Settings = {"gpus": float(len(gpus))}
    name, capability = readings.fact(gpus[0], "name"), _number(readings.fact(gpus[0], "compute_capability"))
    if name is not None:
        found["gpu_name"] = name
    if capability is not None:
        found["compute_capability"] = capability
    return found


def _mounts(readings: Readings) -> Settings:
    found: Settings = {}
    for subject in readings.subjects("mount:"):
        kind = readings.fact(subject, "filesystem")
        if kind is not None:
            network = " network" if readings.fact(subject, "network") == "yes" else ""
            found[f"mount.{subject.removeprefix('mount:')}"] = kind + network
    return found


def _disks(readings: Readings) -> Settings:
    """A virtual disk reports no model, and that it rotates: of such a one neither is known."""
    found: Settings = {}
    for subject in readings.subjects("device:"):
        model, rotates = readings.fact(subject, "model"), readings.fact(subject, "rotates")
        name = subject.removeprefix("device:")
        if model is not None:
            found[f"disk.{name}"] = model
            if rotates is not None:
                found[f"disk_kind.{name}"] = "rotating" if rotates == "yes" else "solid state"
    return found


def _environment(recording: Recording, trainers: Trainers) -> Settings:
    """Of the first trainer whose environment could be read."""
    seen = recording.rows(ProcessSeen)
    for pid, _ in trainers:
        for process in seen:
            if process.pid == pid and (variables := json.loads(process.environment)) is not None:
                return {f"env.{name}": str(value) for name, value in variables.items()}
    return {}


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
