"""What stacks, thread names and machine code show of how a job is built, so that advice fits its code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfdoctor.knowledge.frames import Frame, in_loader

if TYPE_CHECKING:
    from perfdoctor.timeline.job import JobTimeline

# With fewer stacks of a trainer than this, what is in none of them may still be in the job: of a call that takes 3 % of
# the time, 100 samples miss all in 5 % of cases.
_ENOUGH = 100
_DDP = re.compile(r"/torch/nn/parallel/distributed\.py$")
_DATASET = re.compile(r"/torch/utils/data/dataset\.py$")
# Threads of process groups (torch/csrc/distributed/c10d/ProcessGroup*.cpp). A job with both computes on GPUs, and its
# gradients go through NCCL.
_BACKENDS = {"nccl": "pt_nccl", "gloo": "pt_gloo"}


def read_code_settings(job: JobTimeline) -> dict[str, str | float]:
    """What is seen of a job's code; what is not known is absent.

    Returns:
        ``loader`` and ``ddp``: ``yes`` or ``no``; ``backend`` of collectives: ``nccl`` or ``gloo``; ``dataset``:
        ``tensors`` where samples are rows of tensors in memory (``TensorDataset``).
    """
    pids = {trainer.pid for trainer in job.processes.trainers}
    workers = {worker.pid for pid in pids for worker in job.processes.workers_of(pid)}
    stacks = list(_stacks(job, pids))
    found: dict[str, str | float] = {}
    for name, seen in (("loader", has_loader(job, pids)), ("ddp", _any_frame(stacks, _in_ddp))):
        if seen:
            found[name] = "yes"
        elif len(stacks) >= _ENOUGH:
            found[name] = "no"
    if any(_reads_tensors(stack) for stack in [*stacks, *_stacks(job, workers)]):
        found["dataset"] = "tensors"
    names = [thread.name for thread in job.threads.by_tid.values() if thread.pid in pids]
    for backend, prefix in _BACKENDS.items():
        if "backend" not in found and any(name.startswith(prefix) for name in names):
            found["backend"] = backend
    return found


def has_loader(job: JobTimeline, pids: set[int]) -> bool:
    """Whether any of some trainers gets its input from a DataLoader: it has workers, or was seen in its code."""
    return any(job.processes.workers_of(pid) for pid in pids) or _any_frame(_stacks(job, pids), in_loader)


def _any_frame(stacks: Iterable[tuple[Frame, ...]], shows: Callable[[Frame], bool]) -> bool:
    return any(shows(frame) for stack in set(stacks) for frame in stack)


def _in_ddp(frame: Frame) -> bool:
    return _DDP.search(frame.file) is not None


def _stacks(job: JobTimeline, pids: set[int]) -> Iterator[tuple[Frame, ...]]:
    """The stacks of some processes' main threads, each as often as it was seen anew."""
    for track in job.stacks.series:
        if track.pid in pids and track.is_main:
            yield from (job.stacks.frames[number] for number in track.stacks.tolist() if number >= 0)


def _reads_tensors(stack: Sequence[Frame]) -> bool:
    """Whether a sample is being taken out of tensors by torch's own dataset: other datasets of torch call further."""
    return bool(stack) and _DATASET.search(stack[-1].file) is not None and any(
        frame.simple_name in ("__getitem__", "__getitems__") for frame in stack[-2:]
    )
