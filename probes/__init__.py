"""Probes: each looks at one kind of signal and yields samples. Standard library, psutil and NVML only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from perfdoctor.recording.schema import Sample, Unavailable

if TYPE_CHECKING:
    from perfdoctor.probes.readers.process import Candidate


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


class Refusal(NamedTuple):
    """Why something cannot be seen.

    Attributes:
        reason: one sentence.
        enable: the command or setting that enables it.
    """

    reason: str
    enable: str


class Availability(NamedTuple):
    """What a probe would see of a process.

    Attributes:
        probe: its name.
        available: it can look, perhaps not at everything: then ``reason`` says what is missing.
        reason: one sentence; empty if nothing is missing.
        enable: the command or setting that enables what is missing; empty likewise.
    """

    probe: str
    available: bool
    reason: str = ""
    enable: str = ""

    @classmethod
    def unless(cls, probe: str, refusal: Refusal | None) -> Availability:
        """All is seen, or nothing where there is a refusal."""
        return cls(probe, refusal is None, *(refusal or ()))

    @classmethod
    def but_for(cls, probe: str, *refusals: Refusal | None) -> Availability:
        """All is seen but for what is refused."""
        missing = [refusal for refusal in refusals if refusal is not None]
        return cls(probe, True, " ".join(one.reason for one in missing), "; ".join(one.enable for one in missing))

    @property
    def state(self) -> str:
        """``works``, ``in part`` or ``no``."""
        if not self.available:
            return "no"
        return "in part" if self.reason else "works"

    def missing(self) -> Iterator[Unavailable]:
        """The row that a recording keeps of what is missing; none if nothing is."""
        if self.reason:
            yield Unavailable(self.probe, self.reason, self.enable)


class Probe(Protocol):
    """Looks at one kind of signal.

    A probe is made without arguments that touch the job. Then it is either only asked what it would see (``check``), or
    opened once, sampled at its own period by the recorder, and closed. It never raises for something that it could not
    see: it yields ``Unavailable`` (or a ``None`` value) instead.
    Constructors take ``root: Path = Path("/")`` where they read /proc or /sys, so that tests can hand them a recorded
    tree.
    """

    name: str
    period_s: float

    def check(self, process: Candidate) -> Availability:
        """What would be seen of a process; nothing in it is touched."""
        ...

    def open(self, job: Processes) -> Iterable[Sample]:
        """Starts looking; yields what is known at once (facts, and ``Unavailable`` for what cannot be seen)."""
        ...

    def sample(self, now_ns: int) -> Iterable[Sample]:
        """Takes one sample of the job."""
        ...

    def close(self) -> Iterable[Sample]:
        """Stops looking, undoes whatever was done, and yields what was still under way."""
        ...


@runtime_checkable
class Thinnable(Protocol):
    """A probe that can do with less where perfdoctor takes too much from the machine.

    Attributes:
        share: of what it can do without, how much it may look at; the recorder sets it.
    """

    share: float


@runtime_checkable
class LeavesFiles(Protocol):
    """A probe with helpers that go on for a moment when perfdoctor is killed, and then leave files.

    Attributes:
        recording: the file beside which they lie; the recorder sets it. None keeps them in memory, and loses them.
    """

    recording: Path | None


def all_probes(root: Path = Path("/"), *, steps: bool = False) -> list[Probe]:
    """All probes that can look from outside, in the order in which they are opened; they are closed in the reverse.

    Args:
        root: where /proc and /sys are.
        steps: whether to count steps too, for which a page of the job's code is changed meanwhile.
    """
    from perfdoctor.probes.code import CodeProbe
    from perfdoctor.probes.cpu import CpuProbe
    from perfdoctor.probes.gpu import GpuProbe
    from perfdoctor.probes.interpreter import InterpreterProbe
    from perfdoctor.probes.io import IoProbe
    from perfdoctor.probes.memory import MemoryProbe
    from perfdoctor.probes.network import NetworkProbe
    from perfdoctor.probes.readers.cpython import Layouts
    from perfdoctor.probes.stacks import StacksProbe
    from perfdoctor.probes.steps import StepsProbe
    from perfdoctor.probes.threads import ThreadsProbe
    from perfdoctor.probes.waits import WaitsProbe

    layouts = Layouts()
    return [
        CodeProbe(root),  # closed last: it then looks up the names of functions
        *([StepsProbe(root)] if steps else []),
        ThreadsProbe(),
        InterpreterProbe(root, layouts),
        StacksProbe(root=root, layouts=layouts),
        CpuProbe(root),
        MemoryProbe(root),
        IoProbe(root),
        NetworkProbe(root),
        GpuProbe(root),
        WaitsProbe(root, layouts),
    ]


__all__ = [
    "Availability",
    "LeavesFiles",
    "Probe",
    "Processes",
    "Refusal",
    "Sample",
    "Thinnable",
    "Unavailable",
    "all_probes",
]
