"""Traces with planted timelines as Kineto would write them, in microseconds; and what they are accounted for."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfdoctor.analysis import from_operations, from_traces
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.wording import worded_diagnosis
from perfdoctor.traces.account import RankAccount, account_for
from perfdoctor.traces.model import Trace
from perfdoctor.traces.reader import read_trace

HOST = 100
MAIN = 100
GPU = "NVIDIA H100 80GB HBM3"
GEMM = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT"
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >"
)
# How the profiler marks the fetching of a batch.
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class MadeTrace:
    """Collects events; ``write`` makes a file of them."""

    events: list[dict[str, Any]] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)
    last_correlation: int = 0

    def span(self, category: str, name: str, start: float, end: float, **more: Any) -> None:
        """A duration event on the host's main thread, unless told otherwise."""
        event = {"ph": "X", "cat": category, "name": name, "pid": HOST, "tid": MAIN, "ts": start, "dur": end - start}
        self.events.append({**event, "args": {}, **more})

    def operator(self, name: str, start: float, end: float, *, thread: int = MAIN) -> None:
        self.span("cpu_op", name, start, end, tid=thread)

    def annotation(self, name: str, start: float, end: float, *, thread: int = MAIN) -> None:
        self.span("user_annotation", name, start, end, tid=thread)

    def step(self, number: int, start: float, end: float) -> None:
        self.annotation(f"ProfilerStep#{number}", start, end)

    def call(self, name: str, start: float, end: float, *, thread: int = MAIN) -> int:
        """A call of the runtime; returns its correlation."""
        self.last_correlation += 1
        arguments = {"correlation": self.last_correlation}
        self.span("cuda_runtime", name, start, end, tid=thread, args=arguments)
        return self.last_correlation

    def on_device(
        self, name: str, start: float, end: float, correlation: float, *, category: str = "kernel", **arguments: Any
    ) -> None:
        given: dict[str, Any] = {"device": 0, "stream": 7, "correlation": correlation, **arguments}
        if category == "kernel":
            given.setdefault("grid", [1024, 1, 1])
        self.span(category, name, start, end, pid=given["device"], tid=given["stream"], args=given)

    def launch(self, name: str, called: float, start: float, end: float, *, thread: int = MAIN, **more: Any) -> None:
        """A kernel and the call that launched it, which takes 4 us."""
        self.on_device(name, start, end, self.call("cudaLaunchKernel", called, called + 4, thread=thread), **more)

    def gpu(self, name: str = GPU, capability: tuple[int, int] = (9, 0), multiprocessors: int = 132) -> None:
        major, minor = capability
        properties = {"id": 0, "name": name, "computeMajor": major, "computeMinor": minor, "numSms": multiprocessors}
        self.document["deviceProperties"] = [properties]

    def text(self) -> str:
        return json.dumps({"schemaVersion": 1, **self.document, "traceEvents": self.events})

    def write(self, path: Path) -> Path:
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def account(made: MadeTrace, folder: Path) -> RankAccount:
    return account_for(read_trace(made.write(folder / "trace.json")))


def shares(made: MadeTrace, folder: Path) -> dict[str, float]:
    return {cause: round(share, 3) for cause, share in account(made, folder).shares.items()}


def steady(*, kernels: int = 10, each: float = 1000.0) -> MadeTrace:
    """A host far ahead of a GPU that never idles, from 0 to ``kernels * each``."""
    made = MadeTrace()
    made.gpu()
    made.step(1, 0.0, 100.0 + kernels * 10)
    for number in range(kernels):
        made.launch(GEMM, number * 10.0, 5.0 + number * each, 5.0 + (number + 1) * each)
    return made


def loop(work: float, host: float, *, steps: int = 10) -> MadeTrace:
    """Steps in which the host takes its time before it launches the one kernel of a step."""
    made = MadeTrace()
    made.gpu()
    period = work + host
    for number in range(steps):
        start = number * period
        made.step(number, start, start + period)
        made.launch(GEMM, start + host - 10.0, start + host, start + period)
    return made


def diagnose_traces(traces: Iterable[Trace]) -> Diagnosis:
    """The diagnosis of a job's traces, in words."""
    return worded_diagnosis(from_traces.diagnose_traces(traces))


def diagnose_table(path: Path) -> Diagnosis:
    """The diagnosis of a table of operations, in words."""
    return worded_diagnosis(from_operations.diagnose_table(path))
