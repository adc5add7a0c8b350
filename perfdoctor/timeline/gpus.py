"""Which GPUs the job's processes compute on, and whether they do at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.launchers import local_rank
from perfdoctor.knowledge.symbols import DRIVERS, CodeKind
from perfdoctor.knowledge.threads import AUTOGRAD, OF_DRIVERS
from perfdoctor.recording.reader import Recording
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.processes import variables_of
from perfdoctor.timeline.readings import Readings
from perfdoctor.timeline.threads import ThreadSeries

# Kinds of code in which operators are found and carried out.
_OPERATORS: tuple[CodeKind, ...] = ("dispatch", "kernel")
# Variables that list the GPUs which a process may use.
_LISTS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Gpus:
    """Answers for one recording.

    Args:
        recording: its processes and threads.
        readings: what was read of GPUs.
        code: samples of machine code.
        threads: what was sampled of each thread, by its id.

    Attributes:
        processes: those that compute on a GPU: the driver lists them, or they have its threads or code; or they have
            its files or threads of autograd's, and nothing speaks against it.
    """

    def __init__(
        self, recording: Recording, readings: Readings, code: CodeSamples, threads: Mapping[int, ThreadSeries]
    ) -> None:
        self._readings = readings
        self._of, self._all = _read_users(recording.series)
        in_driver = {tid for kind in DRIVERS for tid in code.of_kind(kind).tids.tolist()}
        sure = {*self._of, *_with_threads(recording, OF_DRIVERS, in_driver)}
        self.processes = frozenset(sure | self._able(recording, code, threads))
        self._local_ranks = _local_ranks(recording, self.processes)
        self._shown = {
            pid: _shown(self._all, variables_of(process), readings) for pid, process in recording.processes.items()
        }

    def _able(self, recording: Recording, code: CodeSamples, threads: Mapping[int, ThreadSeries]) -> set[int]:
        """Processes that found a GPU, without those that evidently compute elsewhere.

        PyTorch asks for the number of devices in a first backward pass, wherever that is carried out: it starts a
        thread of autograd's for each, which then works or never does, and the driver opens its files.
        """
        if _lists_nobody(self._all, self._readings):
            return set()
        facts = self._readings.facts
        files = {subject: driver for (subject, name), driver in facts.items() if name == "device_files"}
        of_files = {int(subject.removeprefix("pid:")) for subject in files if subject.startswith("pid:")}
        # Whoever launches on a GPU of NVIDIA's spends a fifth of that in the driver: samples would have shown it.
        shown = Counter(seen.pid for tid in _at_work(code) if (seen := recording.threads.get(tid)))
        elsewhere = {
            pid for pid in of_files if files[f"pid:{pid}"] == "nvidia" and shown[pid] >= thresholds.LAUNCHES_SEEN
        }
        return (of_files | _in_backward(threads.values())) - elsewhere

    def used_by(self, pid: int) -> bool:
        """Whether a process computes on a GPU."""
        return pid in self.processes

    def of(self, pid: int) -> tuple[str, ...]:
        """The GPUs of a process, ``gpu:0`` for instance.

        Where the driver's ids say nothing, as in a container, it is one of those that the process is shown: that of its
        local rank if it is shown several, or there is one in use for each; and else all of them that are in use.
        """
        if self._of or not self.used_by(pid):
            return self._of.get(pid, ())
        shown = self._shown[pid]
        used = tuple(gpu for gpu in shown or self._all if self._is_used(gpu)) or shown or self._all
        if pid not in self._local_ranks:
            return used
        number = self._local_ranks[pid]
        if number < len(shown) > 1:
            return (shown[number],)
        place = list(self._local_ranks).index(pid)
        return (used[place],) if not shown and len(used) == len(self._local_ranks) else used

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


def _with_threads(recording: Recording, names: tuple[str, ...], tids: Collection[int] = ()) -> set[int]:
    """Processes with threads whose names begin so, or that are among some."""
    return {seen.pid for tid, seen in recording.threads.items() if tid in tids or seen.name.startswith(names)}


def _in_backward(threads: Iterable[ThreadSeries]) -> set[int]:
    """Processes in which a thread of autograd's for a device worked while it was watched."""
    return {thread.pid for thread in threads if thread.name.startswith(AUTOGRAD) and thread.wanted_cpu}


def _at_work(code: CodeSamples) -> list[int]:
    """The threads of samples in PyTorch's operators, one for each sample."""
    found: list[int] = []
    for kind in _OPERATORS:
        found += code.of_kind(kind).tids.tolist()
    return found


def _lists_nobody(gpus: Sequence[str], readings: Readings) -> bool:
    """Whether the driver said of each GPU whose processes are on it, and none was the job's.

    A list without anybody on a GPU that is busy is none.
    """
    listed = {gpu: readings.maximum(gpu, "job_processes") for gpu in gpus if not _is_divided(gpu, gpus)}
    return bool(listed) and all(
        own == 0 and (readings.maximum(gpu, "foreign_processes") or not readings.maximum(gpu, "busy_fraction"))
        for gpu, own in listed.items()
    )


def _is_divided(gpu: str, gpus: Sequence[str]) -> bool:
    """Whether a GPU is partitioned: then its instances are listed."""
    return any(other.startswith(f"{gpu}:") for other in gpus)


def _shown(gpus: Sequence[str], variables: Mapping[str, str], readings: Readings) -> tuple[str, ...]:
    """Those of some GPUs that a process's environment leaves it, in its order; none where it does not say.

    Numbers are CUDA's, which are the driver's where all GPUs are alike or it is set to count so; else the fastest one
    comes first. Of instances of partitioned GPUs only their names are sure. Of ROCm's lists one may count on from
    another: several that differ say nothing.
    """
    lists = {variables[name] for name in _LISTS if variables.get(name)}
    alike = len({readings.fact(gpu, "name") for gpu in gpus}) == 1
    whole = not any(map(_is_instance, gpus))
    by_number = gpus if whole and (alike or variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID") else ()
    found = []
    for name in lists.pop().split(",") if len(lists) == 1 else ():
        named = [gpu for gpu in gpus if len(name) > 4 and (readings.fact(gpu, "uuid") or "").startswith(name.strip())]
        if name.strip().isdigit() and int(name) < len(by_number):
            named = [by_number[int(name)]]
        if len(named) != 1:  # CUDA goes no further, either
            break
        found += named
    return tuple(found)


def _is_instance(gpu: str) -> bool:
    return gpu.count(":") > 1


def _by_number(gpu: str) -> list[int]:
    return [int(number) for number in gpu.split(":")[1:]]


def _local_ranks(recording: Recording, on_gpu: frozenset[int]) -> dict[int, int]:
    """The local ranks that a launcher gave processes on a GPU, in their order; those aside that inherited theirs."""
    ranks: dict[int, int] = {}
    for pid, process in recording.processes.items():
        rank = local_rank(variables_of(process))
        if pid in on_gpu and rank is not None and not process.forked and rank not in ranks.values():
            ranks[pid] = rank
    return dict(sorted(ranks.items(), key=lambda one: one[1]))


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
    return {pid: tuple(sorted(gpus)) for pid, gpus in found.items()}, tuple(sorted(every, key=_by_number))
