"""What a profiler costs is told from the trace, and the job that is accounted for is the one without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from perfdoctor.traces.rank import Rank, summarize
from perfdoctor.traces.reader import read_trace
from perfdoctor.traces.recording_cost import estimate_recording
from tests.builders.traces import ALL_REDUCE, GEMM, MadeTrace, account, diagnose_traces

BATCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
STEPS, BLOCKS, HIDDEN = 4, 60, 3
NOTHING = 0.001  # us that pass between two moments at which nothing is done


@dataclass
class Job:
    """A job of small operators, each of which sets memory and launches a kernel.

    Attributes:
        kernel: us that each of the kernels takes.
        edge: us that the profiler takes at each start and end of an operator.
        call: us that it takes for each call of the runtime, of which most are not shown.
        batches: us from one batch of the loader's workers to the next; None for a job without a loader.
        waits: at the end of each step it waits for the GPU.
        frees: it frees memory there, which waits as well.
        pinned: copies a batch from pinned memory at the begin of each step.
    """

    kernel: float
    edge: float = 0.45
    call: float = 0.8
    batches: float | None = None
    waits: bool = False
    frees: bool = False
    pinned: bool = False

    def trace(self) -> MadeTrace:
        made = MadeTrace()
        made.gpu()
        self.now, self.free = 0.0, 0.0
        for step in range(STEPS):
            begun = self.now
            if self.batches is not None:
                self.fetch(made, (step + 1) * self.batches)
            if self.pinned:
                self.copy(made)
            for _ in range(BLOCKS):
                self.block(made)
            if self.waits or self.frees:
                self.wait(made, "cudaFree" if self.frees else "cudaStreamSynchronize")
            made.step(step, begun, self.now)
        return made

    def fetch(self, made: MadeTrace, arrives: float) -> None:
        begun = self.now
        self.now = max(self.now + 5.0, arrives)
        made.annotation(BATCH, begun, self.now)

    def copy(self, made: MadeTrace) -> None:
        number = made.call("cudaMemcpyAsync", self.now, self.now + 9.0)
        begins = max(self.free, self.now + 6.0)
        self.free = begins + 2.0
        made.on_device("Memcpy HtoD (Pinned -> Device)", begins, self.free, number, category="gpu_memcpy")
        self.now += 12.0

    def block(self, made: MadeTrace) -> None:
        outer = self.now
        view = self.passes(self.edge)
        made.operator("aten::view", view, self.passes(self.edge))
        inner = self.passes(self.edge)
        self.passes(self.edge + 2.0)
        for name in ("memset", GEMM):
            self.passes((HIDDEN + 1) * self.call)
            made.last_correlation += HIDDEN
            self.free = max(self.free, self.now + 5.0)
            made.launch(name, self.now, self.free, self.free + (1.0 if name == "memset" else self.kernel))
            self.free += 1.0 if name == "memset" else self.kernel
            self.passes(4.0)
        made.operator("aten::fill_", inner, self.passes(1.0))
        made.operator("aten::zeros", outer, self.passes(self.edge))
        self.passes(self.edge + 3.0)

    def passes(self, time: float) -> float:
        self.now += time + NOTHING
        return self.now

    def wait(self, made: MadeTrace, call: str) -> None:
        begun = self.now
        self.now = max(self.now + 1.0, self.free + 1.5)
        made.call(call, begun, self.now)
        self.passes(20.0)

    def without(self) -> Job:
        """The same job without the profiler."""
        return Job(self.kernel, 0.0, 0.0, self.batches, self.waits, self.frees, self.pinned)


JOBS = {
    "the host is the limit": Job(kernel=2.0),
    "the GPU is the limit without a profiler": Job(kernel=17.0),
    "the GPU is the limit in any case": Job(kernel=60.0),
    "it waits for results": Job(kernel=17.0, waits=True),
    "it frees memory": Job(kernel=17.0, frees=True),
    "it copies batches from pinned memory": Job(kernel=17.0, pinned=True),
    "it waits for batches": Job(kernel=2.0, batches=4000.0),
}


def summary(made: MadeTrace, folder: Path, *, undisturbed: bool = True) -> Rank:
    return summarize(read_trace(made.write(folder / "trace.json")), undisturbed=undisturbed)


def shares(rank: Rank) -> dict[str, float]:
    total = rank.slices[0].summed(rank.slices).fractions()
    return {cause: share for cause, share in total.items() if share > 0.02}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_account_is_that_of_the_job_without_a_profiler(job: Job, tmp_path: Path) -> None:
    found = summary(job.trace(), tmp_path)
    truth = summary(job.without().trace(), tmp_path, undisturbed=False)
    assert found.window.length == pytest.approx(truth.window.length, rel=0.04)
    assert shares(found) == pytest.approx(shares(truth), abs=0.04)


def test_steps_are_reported_as_they_were_traced(tmp_path: Path) -> None:
    made = Job(kernel=17.0).trace()
    found, traced = (summary(made, tmp_path, undisturbed=wanted) for wanted in (True, False))
    assert found.loop.lengths.tolist() == traced.loop.lengths.tolist()
    assert found.window.length < 0.8 * traced.window.length
    assert "traced_recording" not in traced.numbers


def test_the_report_says_what_the_profiler_took(tmp_path: Path) -> None:
    diagnosis = diagnose_traces([read_trace(Job(kernel=2.0).trace().write(tmp_path / "trace.json"))])
    assert diagnosis.verdict.cause == "cpu.kernel_launch"
    said = diagnosis.method[-1]
    assert "the profiler itself took 37% of the time on the host" in said
    assert "a step takes 0.9 ms instead of 1.4" in said


def test_costs_are_those_of_the_shortest_pauses(tmp_path: Path) -> None:
    cost = estimate_recording(account(Job(kernel=2.0).trace(), tmp_path).host)
    assert cost is not None
    assert cost.range_ns == pytest.approx(900, abs=20)
    assert cost.call_ns == pytest.approx(800, abs=20)


def test_nothing_is_told_of_jobs_with_other_ranks(tmp_path: Path) -> None:
    """How much earlier these would be is not in the trace."""
    made = Job(kernel=2.0).trace()
    made.launch(ALL_REDUCE, 3.0, 30.0, 40.0)
    assert "traced_recording" not in summary(made, tmp_path).numbers


def test_nothing_is_told_by_clocks_of_whole_microseconds(tmp_path: Path) -> None:
    made = Job(kernel=2.0, edge=1.0, call=1.0).trace()
    for event in made.events:
        end = round(event["ts"] + event["dur"])
        event["ts"] = round(event["ts"])
        event["dur"] = end - event["ts"]
    assert "traced_recording" not in summary(made, tmp_path).numbers


def test_nothing_is_told_of_few_operators(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    for number in range(30):
        made.operator("aten::mm", number * 20.0, number * 20.0 + 15.5)
        made.launch(GEMM, number * 20.0 + 5.0, number * 20.0 + 10.0, number * 20.0 + 12.0)
    assert "traced_recording" not in summary(made, tmp_path).numbers
