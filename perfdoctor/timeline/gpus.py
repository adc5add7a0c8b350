"""Which GPUs the job's processes compute on, and whether they do at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.symbols import classify
from perfdoctor.knowledge.threads import AUTOGRAD, OF_DRIVERS
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CodeSample
from perfdoctor.timeline.readings import Readings

# Threads that only processes with a GPU have.
_SHOW = (AUTOGRAD, *OF_DRIVERS)


class Gpus:
    """Answers for one recording.

    Args:
        recording: its processes and threads.
        readings: what was read of GPUs.
        code: samples of machine code.

    Attributes:
        processes: those that compute on a GPU: the driver lists them, or they have its threads, files or code.
    """

    def __init__(self, recording: Recording, readings: Readings, code: Iterable[CodeSample]) -> None:
        self._readings = readings
        self._of, self._all = _read_users(recording.series)
        files = (subject for subject, name in readings.facts if name == "device_files" and subject.startswith("pid:"))
        in_driver = {row.tid for row in code if classify(row.image, row.symbol) == "driver"}
        self.processes = frozenset(
            {
                *self._of,
                *(int(subject.removeprefix("pid:")) for subject in files),
                *(
                    seen.pid
                    for tid, seen in recording.threads.items()
                    if tid in in_driver or seen.name.startswith(_SHOW)
                ),
            }
        )
        self._local_ranks = _local_ranks(recording, self.processes)

    def used_by(self, pid: int) -> bool:
        """Whether a process computes on a GPU."""
        return pid in self.processes

    def of(self, pid: int) -> tuple[str, ...]:
        """The GPUs of a process, ``gpu:0`` for instance.

        Where the driver's ids say nothing, as in a container, it is that of its local rank if there is one in use for
        each, and else all that are in use.
        """
        if self._of or not self.used_by(pid):
            return self._of.get(pid, ())
        used = tuple(gpu for gpu in self._all if self._is_used(gpu)) or self._all
        if pid in self._local_ranks and len(used) == len(self._local_ranks):
            return (used[self._local_ranks.index(pid)],)
        return used

    def _is_used(self, gpu: str) -> bool:
        """Whether anybody computes on a GPU, or keeps memory there."""
        busy = self._readings.maximum(gpu, "busy_fraction") or 0.0
        return busy > 0 or self._memory_used(gpu) > thresholds.UNUSED_GPU

    def memory_used(self, pid: int) -> float:
        """The largest fraction of memory that was in use on a process's GPUs; 0 where that was not read."""
        return max(map(self._memory_used, self.of(pid)), default=0.0)

    def _memory_used(self, gpu: str) -> float:
        used, whole = (self._readings.maximum(gpu, f"memory_{what}_bytes") for what in ("used", "total"))
        return used / whole if used is not None and whole else 0.0


def _local_ranks(recording: Recording, on_gpu: frozenset[int]) -> list[int]:
    """Processes on a GPU in order of the local ranks that a launcher gave them, those aside that inherited theirs."""
    ranks: dict[int, int] = {}
    for pid, process in recording.processes.items():
        rank = (json.loads(process.environment) or {}).get("LOCAL_RANK", "")
        if pid in on_gpu and rank.isdigit() and not process.forked and int(rank) not in ranks.values():
            ranks[pid] = int(rank)
    return sorted(ranks, key=lambda pid: ranks[pid])


def _read_users(series: Mapping[tuple[str, str], object]) -> tuple[dict[int, tuple[str, ...]], tuple[str, ...]]:
    """The GPUs of each process of the job, and all GPUs that were watched."""
    found: dict[int, list[str]] = {}
    every = set()
    for subject, _ in series:
        gpu, _, process = subject.partition("/")
        if not gpu.startswith("gpu:"):
            continue
        every.add(gpu)
        if process.startswith("pid:") and gpu not in (gpus := found.setdefault(int(process.removeprefix("pid:")), [])):
            gpus.append(gpu)
    return {pid: tuple(sorted(gpus)) for pid, gpus in found.items()}, tuple(sorted(every))
