"""Probes: each looks at one kind of signal and yields samples. Standard library, psutil and NVML only."""

from collections.abc import Iterable
from typing import Protocol

from perfdoctor.recording.schema import Sample, Unavailable


class Processes(Protocol):
    """The job as a probe sees it: which processes it has just now."""

    def pids(self) -> tuple[int, ...]:
        """Process ids of the job's living processes, parents before children."""
        ...

    def torch_pids(self) -> tuple[int, ...]:
        """Those of them that have torch loaded."""
        ...

    def parent_of(self, pid: int) -> int | None:
        """The parent of one of them."""
        ...

    def forked_pids(self) -> tuple[int, ...]:
        """Those of them that were forked from another one, as loader workers are."""
        ...


class Probe(Protocol):
    """Looks at one kind of signal.

    A probe is made without arguments that touch the job, opened once, sampled at its own period by the recorder,
    and closed. It never raises for something that it could not see: it yields ``Unavailable`` (or a ``None`` value)
    instead.
    Constructors take ``root: Path = Path("/")`` where they read /proc or /sys, so that tests can hand them a recorded
    tree.
    """

    name: str
    period_s: float

    def open(self, job: Processes) -> Iterable[Sample]:
        """Starts looking; yields what is known at once (facts, and ``Unavailable`` for what cannot be seen)."""
        ...

    def sample(self, now_ns: int) -> Iterable[Sample]:
        """One look at the job."""
        ...

    def close(self) -> Iterable[Sample]:
        """Stops looking, undoes whatever was done, and yields what was still under way."""
        ...


__all__ = ["Probe", "Processes", "Sample", "Unavailable"]
