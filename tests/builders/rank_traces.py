"""Traces of several ranks with planted timelines. Times are microseconds on one clock; a rank's own may be skewed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perfdoctor.cluster.files import find_traces
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import ALL_REDUCE, GEMM, LOADER, MadeTrace, diagnose_traces

EPOCH_US = 1.7e15
COMMON_NS = 1_700_000_000_000_000_000


class MadeJob:
    """Ranks that compute, then meet in a collective, step by step; the collective begins when the last one is there.

    Args:
        world: ranks of the job.
        marks: whether the traces mark steps.
        numbered: whether collectives bear their number, as recent versions of PyTorch write it.
        skew: what each rank's clock is ahead, in microseconds.
        size: elements in each collective; None where the file does not say.
    """

    def __init__(
        self,
        world: int,
        *,
        marks: bool = True,
        numbered: bool = False,
        skew: Sequence[float] = (),
        size: int | None = None,
    ) -> None:
        self.world = world
        self.marks, self.numbered, self.size = marks, numbered, size
        self.skew = list(skew) or [0.0] * world
        self.now = [1000.0] * world
        self.steps = 0
        self.exchanges = 0
        self.traces = [MadeTrace() for _ in range(world)]
        for rank, made in enumerate(self.traces):
            made.gpu()
            made.document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
            made.document["baseTimeNanoseconds"] = COMMON_NS
            made.annotation("init", 0.0, 1.0 + rank * 0.01)  # no two processes agree in all their times

    def compute(self, rank: int, length: float, *, hidden: Callable[[MadeTrace, float], None] | None = None) -> None:
        """One kernel, launched in time: the host is ahead."""
        made, now = self.traces[rank], self._own(rank)
        made.operator("aten::mm", now - 9.0, now - 4.0)
        made.launch(GEMM, now - 8.0, now, now + length)
        if hidden is not None:
            hidden(made, now)
        self.now[rank] += length

    def load(self, rank: int, length: float) -> None:
        """The GPU idles while the main thread fetches a batch."""
        now = self._own(rank)
        self.traces[rank].annotation(LOADER, now, now + length - 10.0)
        self.now[rank] += length

    def meet(
        self,
        transfer: float,
        *,
        ranks: Sequence[int] | None = None,
        group: str = "0",
        streams: Sequence[int] | None = None,
    ) -> None:
        """A collective that takes some time once all of its ranks are there.

        Args:
            transfer: how long.
            ranks: of the group; all if it is not given.
            group: its name.
            streams: on which each of them runs it.
        """
        ranks = range(self.world) if ranks is None else ranks
        end = max(self.now[rank] for rank in ranks) + transfer
        message = self._message(group, len(ranks))
        for rank, stream in zip(ranks, streams or [20] * len(ranks), strict=True):
            now = self._own(rank)
            self.traces[rank].launch(ALL_REDUCE, now - 5.0, now, end + self.skew[rank], stream=stream, **message)
            self.now[rank] = end
        self.exchanges += 1

    def step(self, begun: Sequence[float]) -> None:
        """Marks the step that began at these times."""
        for rank, made in enumerate(self.traces):
            if self.marks:
                made.step(self.steps, begun[rank] + self.skew[rank] - 20.0, self._own(rank) - 20.1)
        self.steps += 1

    def _own(self, rank: int) -> float:
        return self.now[rank] + self.skew[rank]

    def _message(self, group: str, members: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.numbered or self.size is not None:
            found = {"Collective name": "allreduce", "Process Group Name": group, "Group size": members}
            found |= {"In msg nelems": self.size or 25_000_000, "dtype": "Float"}
        return {**found, "Seq": self.exchanges} if self.numbered else found

    def write(self, folder: Path, *, ranks: Sequence[int] | None = None) -> list[Path]:
        folder.mkdir(exist_ok=True)
        wanted = range(self.world) if ranks is None else ranks
        return [self.traces[rank].write(folder / f"rank{rank}.json") for rank in wanted]

    def diagnose(self, folder: Path, *, ranks: Sequence[int] | None = None) -> Diagnosis:
        paths = self.write(folder, ranks=ranks)
        return diagnose_traces(read_trace(path) for path in find_traces(paths))


def shares(diagnosis: Diagnosis, rank: int | None = None) -> dict[str, float]:
    """Cause to share: of the job, or of a rank."""
    if rank is None:
        return {line.cause: line.share for line in diagnosis.breakdown}
    [found] = [one for one in diagnosis.ranks if one["rank"] == rank]
    return {line["cause"]: line["share"] for line in found["breakdown"]}


def waits(diagnosis: Diagnosis, rank: int) -> dict[str, float]:
    """Whom a rank waits for, and for how much of its time."""
    [found] = [one for one in diagnosis.ranks if one["rank"] == rank]
    return {other: round(share, 3) for other, share in found["waits_for"].items() if share >= 0.001}
