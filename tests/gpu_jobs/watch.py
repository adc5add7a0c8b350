"""The recording that perfdoctor's probes would have made of a simulated job, watching it from outside."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from perfdoctor.capture.recorder import JITTER
from perfdoctor.capture.redact import mask_environment
from perfdoctor.probes import gpu as gpu_probe
from perfdoctor.probes.gpu import GpuProbe, why_no_gpu
from perfdoctor.probes.readers import nvidia, nvlink
from perfdoctor.probes.readers import nvml as nvml_reader
from perfdoctor.probes.readers.gpus import _FIRST_NAMESPACE
from perfdoctor.probes.stacks import (
    BUDGET,
    FASTEST_HZ,
    FIRST_SEGMENT_S,
    LONG_SEGMENT_S,
    SEGMENT_S,
    SLOWEST_HZ,
    WORKER_HZ,
    WORKERS_AT_MOST,
)
from perfdoctor.probes.threads import RATE_HZ
from perfdoctor.recording.schema import (
    CODE_FREQUENCY,
    CodeSample,
    Event,
    InterpreterSample,
    ProcessSeen,
    PythonThread,
    Sample,
    StackMissed,
    StackSegment,
    Symbol,
    ThreadSample,
    ThreadSeen,
    Unavailable,
)
from perfdoctor.recording.writer import RecordingWriter
from tests.gpu_jobs import places
from tests.gpu_jobs.events import MS, S
from tests.gpu_jobs.host import Doing, Process
from tests.gpu_jobs.nvml import SimulatedNvml
from tests.gpu_jobs.py_spy import ChromeTrace
from tests.gpu_jobs.simulate import Run
from tests.gpu_jobs.system import system_samples
from tests.gpu_jobs.tracks import START, Track

# Stacks that change while py-spy reads them, of those that run Python.
_MISSED = 0.03
_SWITCHES_NS = S
# Where the job's own code lies: nothing may depend on that.
_OWN_FILES = (places.OWN, "/workspace/src/pretrain.py", "/app/experiments/run.py", "/srv/models/fit_model.py")
_IDENTIFIED = 4  # processes whose threads Python's identifiers are read of


class Watching:
    """Makes the samples of one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.job = run.job
        self.end_ns = run.end_ns
        self.random = random.Random(f"watch {run.job.seed}")
        self.tracks = {thread.tid: Track(thread, run.end_ns) for one in run.processes for thread in one.threads}
        self._own_file = self.random.choice(_OWN_FILES)

    def samples(self) -> Iterator[Sample]:
        """All rows of the recording but those of time 0."""
        yield from self._processes()
        yield from self._threads()
        yield from self._code()
        yield from self._stacks()
        yield from self._interpreters()
        yield from self._readings()
        yield from self._gpus()
        end = START + self.end_ns
        yield Event(end, "stopped", "duration")

    def _processes(self) -> Iterator[Sample]:
        identified = [process.pid for process in self.run.processes if not process.forked][:_IDENTIFIED]
        for process in self.run.processes:
            environment = json.dumps(mask_environment(process.environment))
            started = START - (60 if not process.forked else 40) * S
            yield ProcessSeen(
                START, process.pid, process.parent, started, process.name, process.forked, process.uses_torch,
                process.command, environment,
            )  # fmt: skip
            for thread in process.threads:
                yield ThreadSeen(START, thread.tid, process.pid, thread.name)
                if thread.python_name is not None and process.pid in identified:
                    yield PythonThread(START, process.pid, thread.tid, thread.ident, thread.python_name)

    def _ticks(self, period_s: float) -> Iterator[int]:
        at = 0.0
        while at < self.end_ns:
            yield int(at)
            at += period_s * S * (1 + JITTER * (self.random.random() - 0.5))

    def _threads(self) -> Iterator[Sample]:
        last: dict[int, tuple[int, int]] = {}
        moved: dict[int, int] = {}
        turn = 0
        switches_ns: dict[int, int] = {}
        threads = [(one, thread) for one in self.run.processes for thread in one.threads]
        for tick in self._ticks(1 / RATE_HZ):
            turn = (turn + 1) % 5
            for process, thread in threads:
                tid = thread.tid
                main = tid == process.pid and process.uses_torch
                if not main and tick - moved.get(tid, -S) > S // 4 and tid % 5 != turn:
                    continue
                track = self.tracks[tid]
                index = track.index(tick)
                counters = track.counters(tick)
                if counters != last.get(tid):
                    moved[tid] = tick
                elif not main:
                    continue
                last[tid] = counters
                doing = track.doing[index]
                state = "R" if track.delayed[index] else doing.state
                voluntary = involuntary = None
                if main and tick - switches_ns.get(tid, -_SWITCHES_NS) >= _SWITCHES_NS:
                    switches_ns[tid] = tick
                    voluntary, involuntary = int(track.switches[index]), counters[1] // (4 * MS)
                call, target = (doing.call, doing.target) if state != "R" else (None, "")
                if self.job.watch.device == "rocm" and target.startswith("file:/dev/nvidia"):
                    target = "file:/dev/kfd"
                yield ThreadSample(START + tick, tid, state, call, target, *counters, voluntary, involuntary, 0, 0)

    def _code(self) -> Iterator[Sample]:
        seen: dict[tuple[str, str], int] = {}
        others = {trainer.main for trainer in self.run.trainers}
        if self.job.watch.autograd_code:
            others |= {trainer.autograd for trainer in self.run.trainers}
        for process in self.run.processes:
            for thread in process.threads if process.uses_torch else ():
                if thread.tid == process.pid or thread in others:
                    yield from self._code_of(self.tracks[thread.tid], seen)
        for (image, symbol), offset in seen.items():
            if symbol:
                yield Symbol(image, offset, symbol)

    def _code_of(self, track: Track, seen: dict[tuple[str, str], int]) -> Iterator[Sample]:
        chance = self.random.random
        first, last = track.run_ns(0), track.run_ns(self.end_ns)
        at = first + chance() * S / CODE_FREQUENCY
        while at < last:
            index = int(np.searchsorted(track.run_so_far, at, side="right")) - 1
            doing = track.doing[min(index, len(track.doing) - 1)]
            time = track.times[index] + int(at - track.run_so_far[index])
            at += S / CODE_FREQUENCY * (1 + 0.02 * (chance() - 0.5))
            if not doing.code or chance() < doing.system:
                continue
            image, symbol = self._pick(doing)
            key = (image, symbol)
            offset = seen.setdefault(key, 0x1000 * (len(seen) + 17) + 0x2C4)
            yield CodeSample(START + time, track.thread.tid, image, offset, "")

    def _pick(self, doing: Doing) -> tuple[str, str]:
        weights = [weight for weight, _, _ in doing.code]
        _, image, symbol = self.random.choices(doing.code, weights)[0]
        if self.job.watch.device == "rocm":
            return places.ON_ROCM.get(image, (image, symbol))
        return (self.job.unsure.libcuda if image == places.LIBCUDA else image), symbol

    def _stacks(self) -> Iterator[Sample]:
        trainers = [one for one in self.run.processes if not one.forked and one.rank is not None]
        for process in trainers[:8]:
            threads = sum(thread.python_name is not None for thread in process.threads)
            yield from self._segments(process, *self._rates(threads, len(trainers)))
        workers = [one for one in self.run.processes if one.forked][:WORKERS_AT_MOST]
        for process in workers:
            yield from self._segments(process, WORKER_HZ, LONG_SEGMENT_S, LONG_SEGMENT_S)

    def _rates(self, threads: int, processes: int) -> tuple[float, float, float]:
        """Samples per second, and the lengths of the first and of further segments, as the budget allows."""
        start_s, sample_s = 0.014 + 0.0006 * threads, 0.0005 + 0.00013 * threads
        rate = int((BUDGET / processes - start_s / SEGMENT_S) / sample_s)
        if rate > SLOWEST_HZ:
            return min(FASTEST_HZ, rate), FIRST_SEGMENT_S, SEGMENT_S
        return SLOWEST_HZ, LONG_SEGMENT_S, LONG_SEGMENT_S

    def _segments(self, process: Process, rate: float, first_s: float, next_s: float) -> Iterator[Sample]:
        begin = 80 * MS
        length = first_s
        while begin < self.end_ns - S // 2:
            end = min(begin + int(length * S), self.end_ns)
            yield from self._segment(process, rate, begin, end)
            begin = end + 60 * MS
            length = next_s

    def _segment(self, process: Process, rate: float, begin: int, end: int) -> Iterator[Sample]:
        writer = ChromeTrace(process.pid, self._own_file)
        at = begin + 40 * MS
        while at < end:
            for thread in process.threads:
                if thread.python_name is None:
                    continue
                track = self.tracks[thread.tid]
                index = track.index(at)
                doing = track.doing[index]
                if doing.gil and doing.state == "R" and self.random.random() < _MISSED:
                    yield StackMissed(START + at, process.pid, thread.ident)
                    continue
                stack = self._stack(track, index, at)
                writer.sample(thread.ident, stack, (at - begin) // 1000)
            at += int(self.random.expovariate(rate) * S)
        until = START + end + 20 * MS
        yield StackSegment(START + begin, 2_000_000, until, process.pid, writer.trace())

    def _stack(self, track: Track, index: int, at: int) -> places.Stack:
        stacks = track.doing[index].stacks
        if not stacks:
            return ()
        stack = stacks[self.random.randrange(len(stacks))] if len(stacks) > 1 else stacks[0]
        if track.thread.tid != track.thread.process.pid and stack[0].name == "<module>":
            return (*places.BOOTSTRAP, *stack[1:])  # Python started this thread
        return stack

    def _interpreters(self) -> Iterator[Sample]:
        turn = 0
        for tick in self._ticks(0.02):
            turn = (turn + 1) % 3
            for process in self.run.processes:
                if not process.uses_torch or (process.forked and process.pid % 3 != turn):
                    continue
                holder = self._gil_holder(process, tick)
                yield InterpreterSample(START + tick, process.pid, holder, self._collects(process, tick))

    def _collects(self, process: Process, tick: int) -> bool:
        tracks = [self.tracks[thread.tid] for thread in process.threads if thread.python_name is not None]
        return any(track.doing[track.index(tick)].collecting for track in tracks)

    def _gil_holder(self, process: Process, tick: int) -> int:
        gil = process.gil
        if gil is not None:
            index = bisect_right(gil.holders, tick, key=lambda one: one[0]) - 1
            holder = gil.holders[index][1] if index >= 0 else None
            return holder.tid if holder is not None else 0
        for thread in process.threads:
            if thread.python_name is None:
                continue
            track = self.tracks[thread.tid]
            doing = track.doing[track.index(tick)]
            if doing.gil and doing.state == "R" and self.random.random() >= doing.lets_go:
                return thread.tid
        return 0

    def _readings(self) -> Iterator[Sample]:
        yield from system_samples(self.run, self.tracks)

    def _gpus(self) -> Iterator[Sample]:
        if self.job.watch.device in ("none", "rocm"):
            with tempfile.TemporaryDirectory() as folder:
                if self.job.watch.device == "rocm":
                    Path(folder, "dev").mkdir()
                    Path(folder, "dev/kfd").touch()
                missing = "NVML cannot be used: NVML Shared Library Not Found."
                refusal = why_no_gpu(Path(folder), missing, "The package amdsmi is not installed.")
            yield Unavailable("gpu", *refusal)
            return
        trainers = self.run.trainers
        gpus = [*(trainer.gpu for trainer in trainers), *self.run.spare]
        nvml = SimulatedNvml(self.job, gpus, {trainer.gpu.index: trainer.process.pid for trainer in trainers})
        pids = tuple(process.pid for process in self.run.processes)
        with _driver(nvml, self.job.watch.all_visible) as root:
            probe = GpuProbe(root)
            yield from probe.open(_Job(pids))
            for tick in self._ticks(probe.period_s):
                if tick:
                    nvml.now_ns = tick
                    yield from probe.sample(START + tick)
            yield from probe.close()


class _Job:
    """The job as the GPU probe asks for it."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        self._pids = pids

    def pids(self) -> tuple[int, ...]:
        return self._pids

    def torch_pids(self) -> tuple[int, ...]:
        return ()  # their open files are not simulated

    def parent_of(self, pid: int) -> int | None:
        return None

    def forked_pids(self) -> tuple[int, ...]:
        return ()


@contextmanager
def _driver(nvml: SimulatedNvml, all_visible: bool) -> Iterator[Path]:
    """While it lasts, the probe finds this driver, and simulated time; yields where /proc is."""
    with tempfile.TemporaryDirectory() as folder:
        namespace = Path(folder, "proc/self/ns/pid")
        namespace.parent.mkdir(parents=True)
        namespace.symlink_to(_FIRST_NAMESPACE if all_visible else "pid:[4026532000]")
        with ExitStack() as stack:
            stack.enter_context(patch.dict(sys.modules, {"pynvml": nvml}))  # type: ignore[dict-item]
            for module in (gpu_probe, nvidia, nvlink, nvml_reader):
                stack.enter_context(patch.object(module, "now_ns", lambda: START + nvml.now_ns))
            # Simulated time stands still until a round of readings is through.
            stack.enter_context(patch.object(gpu_probe, "WAIT_S", 60.0))
            yield Path(folder)


def record(run: Run, path: Path) -> Path:
    """Writes the recording of a run."""
    job = run.job
    root = run.processes[0].pid
    meta = {
        "start_ns": str(START), "started": "2026-01-01T00:00:00+0000", "perfdoctor": "simulated",
        "asked_pid": str(root), "host": "host", "machine": "x86_64", "kernel": "6.8.0",
        "cores": str(job.host.cores), "reachable_cores": str(job.host.cores),
    }  # fmt: skip
    with RecordingWriter(path, meta) as writer:
        writer.add(Watching(run).samples())
    return path
