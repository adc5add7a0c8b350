"""Steps of a job that marks none, counted from outside: its backward passes, and the steps of its optimizers.

A probe of the kernel's (``perfdoctor.probes.readers.uprobes``) stands at two functions of libtorch, which every
backward pass and every step of an optimizer of PyTorch's calls once. It is only opened where the user asks for it,
since it changes a page of the job's code while it is there. A sample costs 40 µs for each process, and a few µs for
each call.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes import Availability, Processes, Refusal, Sample, Unavailable
from perfdoctor.probes.readers import call_filter
from perfdoctor.probes.readers.permissions import CAP_PERFMON, CAP_SYS_ADMIN, NO_FILTER, as_root, capable
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.process_memory import image_path, mappings
from perfdoctor.probes.readers.symbols import Elf
from perfdoctor.probes.readers.uprobes import CallProbe, probe_type
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import BACKWARD_CALL, LOST_CALLS, OPTIMIZER_CALL, CountedCall

_LIBRARY = "/libtorch_cpu.so"
# How the mangled names of exported functions begin: torch::autograd::Engine::execute (torch/csrc/autograd/engine.h),
# which runs a backward pass, and record_function_enter_new (torch/csrc/autograd/record_function_ops.cpp, since 1.12).
_BACKWARD = "_ZN5torch8autograd6Engine7executeE"
_SCOPE = "_ZN5torch8autograd8profiler25record_function_enter_new"
# Optimizer.profile_hook_step (torch/optim/optimizer.py) opens a scope of such a name around each step of any optimizer.
_OPTIMIZER_SCOPE = "Optimizer.step#"

# A call costs the job 2 µs, and one that is passed over 1.2 µs (docs/overhead.md): of more calls than so in a second it
# would take about a hundredth of its time.
MOST_CALLS_PER_S = 3_000
# To put a probe at a function takes 15 ms: another thread than the first is only looked at where that one makes no such
# call in this time, and of the others those that run most.
_PATIENCE_NS = 2 * NS_PER_S
_MOST_THREADS = 4


class _Function(NamedTuple):
    """A function whose calls are counted.

    Attributes:
        what: as in ``CountedCall``.
        only: an open filter; None for all calls.
    """

    what: str
    file: Path
    offset: int
    only: int | None = None


class _CountedProcess:
    """One process, and the probes in it by thread."""

    def __init__(self, pid: int, tasks: Path, functions: list[_Function], time_ns: int) -> None:
        self.pid, self._tasks, self._functions = pid, tasks, functions
        self._probes: dict[int, list[tuple[str, CallProbe]]] = {}
        self._called = False
        self._ran_ns: Mapping[int, int] = {}
        self._looked_ns = time_ns
        self.watch(pid)

    def watch(self, tid: int) -> None:
        """Counts the calls of a thread.

        Raises:
            OSError: the kernel refuses it.
        """
        found = self._probes.setdefault(tid, [])
        try:
            for function in self._functions:
                found.append((function.what, CallProbe(tid, function.file, function.offset, function.only)))
        except OSError:
            self._close(tid)
            raise

    def read(self) -> list[CountedCall]:
        """The calls since the last one that was read."""
        found = [
            CountedCall(call.time_ns, self.pid, tid, LOST_CALLS if call.lost else what)
            for tid, probes in self._probes.items()
            for what, probe in probes
            for call in probe.read()
        ]
        self._called = self._called or bool(found)
        return sorted(found)

    def look_for_threads(self, time_ns: int) -> None:
        """Where no thread has made a call for a while, takes up those that run most."""
        if self._called or time_ns - self._looked_ns < _PATIENCE_NS or len(self._probes) > _MOST_THREADS:
            return
        self._looked_ns = time_ns
        before, self._ran_ns = self._ran_ns, _run_times(self._tasks)
        grown = {tid: ran - before.get(tid, ran) for tid, ran in self._ran_ns.items() if tid not in self._probes}
        busy = sorted((tid for tid, ran in grown.items() if ran > 0), key=lambda tid: -grown[tid])
        for tid in busy[: _MOST_THREADS + 1 - len(self._probes)]:
            with suppress(ProcessLookupError):  # it has just ended
                self.watch(tid)

    def close(self) -> None:
        """Takes the probes out."""
        for tid in list(self._probes):
            self._close(tid)

    def _close(self, tid: int) -> None:
        for _, probe in self._probes.pop(tid):
            probe.close()


def _run_times(tasks: Path) -> dict[int, int]:
    found = {}
    for tid in os.listdir(tasks):
        try:
            found[int(tid)] = int((tasks / tid / "schedstat").read_bytes().split()[0])
        except (OSError, IndexError):
            continue  # it has just ended
    return found


class StepsProbe:
    """Counts backward passes and optimizer steps of the job's trainers.

    Args:
        root: where /proc and /sys are.
    """

    name = "steps"
    period_s = 0.5

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._job: Processes | None = None
        self._counted: dict[int, _CountedProcess] = {}
        self._left_alone: set[int] = set()
        self._said: set[str] = set()
        self._filter: int | None = None
        self._sampled_ns = 0

    def check(self, process: Candidate) -> Availability:
        """Both are counted, or backward passes only, or nothing."""
        refusal = _refusal(self._root)
        if refusal is None and not process.rights.read:
            refusal = process.rights.why_not
        if refusal is not None:
            return Availability(self.name, False, *refusal)
        return Availability.but_for(self.name, _without_optimizers(call_filter.refusal()))

    def open(self, job: Processes) -> Iterator[Sample]:
        """Begins to count in the processes that there are now."""
        self._job, self._sampled_ns = job, now_ns()
        if (refusal := _refusal(self._root)) is not None:
            self._job = None
            yield from self._say(refusal)
            return
        try:
            self._filter = call_filter.load(_OPTIMIZER_SCOPE)
        except OSError:
            if (missing := _without_optimizers(call_filter.refusal())) is not None:
                yield from self._say(missing)
        yield from self._meet(self._sampled_ns)

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """The calls since the last one; their times are the kernel's."""
        yield from self._meet(now_ns)
        most = MOST_CALLS_PER_S * max(self.period_s, (now_ns - self._sampled_ns) / NS_PER_S)
        self._sampled_ns = now_ns
        for process in list(self._counted.values()):
            calls = process.read()
            yield from calls
            if len(calls) > most:
                self._leave(process.pid)
                yield from self._say(_too_many(process.pid))
            else:
                yield from self._look_further(process, now_ns)

    def close(self) -> Iterator[Sample]:
        """Takes all probes out, and yields the last calls."""
        for process in self._counted.values():
            yield from process.read()
            process.close()
        self._counted.clear()
        self._job = None
        if self._filter is not None:
            os.close(self._filter)
            self._filter = None

    def _meet(self, time_ns: int) -> Iterator[Sample]:
        """Takes up new processes, but loader workers; lets go of those that have left the job."""
        job = self._job
        if job is None:
            return
        forked, with_torch = job.forked_pids(), job.torch_pids()
        for pid in [pid for pid in self._counted if pid not in with_torch]:
            yield from self._counted[pid].read()
            self._leave(pid)
        for pid in with_torch:
            if pid in self._counted or pid in self._left_alone or pid in forked:
                continue
            try:
                functions = self._functions(pid)
                tasks = self._root / f"proc/{pid}/task"
                self._counted[pid] = _CountedProcess(pid, tasks, functions, time_ns)
            except (OSError, ValueError) as error:
                self._left_alone.add(pid)
                yield from self._refused(pid, error)

    def _look_further(self, process: _CountedProcess, time_ns: int) -> Iterator[Sample]:
        try:
            process.look_for_threads(time_ns)
        except OSError as error:
            self._leave(process.pid)
            yield from self._refused(process.pid, error)

    def _leave(self, pid: int) -> None:
        self._left_alone.add(pid)
        self._counted.pop(pid).close()

    def _functions(self, pid: int) -> list[_Function]:
        """Where the functions lie of the libtorch that a process uses.

        Raises:
            OSError: the library cannot be opened, or the process has gone.
            ValueError: it has no backward pass.
        """
        folder = self._root / "proc" / str(pid)
        library = next((one for one in mappings(folder, only_code=True) if one.path.endswith(_LIBRARY)), None)
        if library is None:
            raise ValueError("its libtorch is not mapped as a file of its own")
        file = image_path(folder, library)
        with Elf(file) as elf:
            backward, scope = (_offset(elf, beginning) for beginning in (_BACKWARD, _SCOPE))
        if backward is None:
            raise ValueError("its libtorch exports no backward pass")
        found = [_Function(BACKWARD_CALL, file, backward)]
        if scope is not None and self._filter is not None:
            found.append(_Function(OPTIMIZER_CALL, file, scope, self._filter))
        return found

    def _refused(self, pid: int, error: OSError | ValueError) -> Iterator[Unavailable]:
        if isinstance(error, ValueError):
            yield from self._say(Refusal(f"Steps of process {pid} are not counted: {error}.", ""))
        elif error.errno in (errno.EMFILE, errno.ENFILE):
            yield from self._say(
                Refusal("There are too many open files to count steps.", "raise ulimit -n for perfdoctor")
            )
        elif error.errno not in (errno.ESRCH, errno.ENOENT):
            reason = f"The kernel refuses to count calls in process {pid} ({error.strerror})."
            yield from self._say(Refusal(reason, as_root(pid)))

    def _say(self, refusal: Refusal) -> Iterator[Unavailable]:
        """Each reason once, not once for each rank."""
        if refusal.reason not in self._said:
            self._said.add(refusal.reason)
            yield Unavailable(self.name, *refusal)


def _too_many(pid: int) -> Refusal:
    return Refusal(
        f"Process {pid} makes more than {MOST_CALLS_PER_S} of the counted calls per second; counting them would slow "
        "it down.",
        "with perfdoctor.diagnose(): in the script",
    )


def _offset(elf: Elf, beginning: str) -> int | None:
    found = elf.find(beginning, beginning=True)
    return None if found is None else elf.offset_of(found[0])


def _refusal(root: Path) -> Refusal | None:
    """Why calls cannot be counted here at all; None if they can.

    Found out with a probe for the calling thread alone, in a file that it has no code of.
    """
    if probe_type(root) is None:
        return Refusal("This kernel has no user-space probes.", "a kernel with CONFIG_UPROBE_EVENTS")
    if not (capable(CAP_PERFMON, root) or capable(CAP_SYS_ADMIN, root)):
        return Refusal("Only root may count calls in a process (CAP_PERFMON).", "run perfdoctor as root")
    try:
        CallProbe(0, Path(__file__), 0).close()
    except OSError as error:
        return Refusal(f"The kernel's user-space probes are refused here ({error.strerror}).", NO_FILTER)
    return None


def _without_optimizers(refusal: Refusal | None) -> Refusal | None:
    """What is missing where calls cannot be identified by a name."""
    if refusal is None:
        return None
    return Refusal(f"Backward passes are counted, not the steps of optimizers. {refusal.reason}", refusal.enable)
