"""Which GPUs the job's processes compute on, and whether they do at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfdoctor.knowledge.symbols import classify
from perfdoctor.knowledge.threads import AUTOGRAD, OF_DRIVERS
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CodeSample

# Threads that only processes with a GPU have.
_SHOW = (AUTOGRAD, *OF_DRIVERS)


class Gpus:
    """Answers for one recording.

    Args:
        recording: what was read of GPUs and processes.
        code: samples of machine code.

    Attributes:
        processes: those that compute on a GPU: the driver lists them, or they have its threads, files or code.
    """

    def __init__(self, recording: Recording, code: Iterable[CodeSample]) -> None:
        self._series, threads = recording.series, recording.threads
        self._of, self._all = _read_users(recording.series)
        files = (subject for subject, name in recording.facts if name == "device_files" and subject.startswith("pid:"))
        in_driver = {row.tid for row in code if classify(row.image, row.symbol) == "driver"}
        self.processes = frozenset(
            {
                *self._of,
                *(int(subject.removeprefix("pid:")) for subject in files),
                *(seen.pid for tid, seen in threads.items() if tid in in_driver or seen.name.startswith(_SHOW)),
            }
        )

    def used_by(self, pid: int) -> bool:
        """Whether a process computes on a GPU."""
        return pid in self.processes

    def of(self, pid: int) -> tuple[str, ...]:
        """The GPUs of a process, ``gpu:0`` for instance; all that were watched where the driver's ids say nothing."""
        return self._of.get(pid, self._all if not self._of and self.used_by(pid) else ())

    def memory_used(self, pid: int) -> float:
        """The largest fraction of memory that was in use on a process's GPUs; 0 where that was not read."""
        found = [
            max(used, default=0.0) / max(whole, default=1.0)
            for gpu in self.of(pid)
            for (_, used), (_, whole) in [
                [self._series.get((gpu, f"memory_{what}_bytes"), ((), ())) for what in ("used", "total")]
            ]
        ]
        return max(found, default=0.0)


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
