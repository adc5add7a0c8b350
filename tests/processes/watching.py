"""For the tests of probes: small programs to watch, and a look at what was seen."""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perfdoctor.probes import Probe
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample, Unavailable
from tests.processes.attaching import until

NOBODY = 65534


class Watched:
    """A job whose processes the test names.

    Args:
        pids: its processes.
        torch: whether they are watched as closely as those with torch.
        forked: those of them that were forked from another one.

    Attributes:
        members: its processes; a test may change them.
    """

    def __init__(self, *pids: int, torch: bool = False, forked: Sequence[int] = ()) -> None:
        self.members: Sequence[int] = pids
        self._torch, self._forked = torch, tuple(forked)

    def pids(self) -> tuple[int, ...]:
        return tuple(self.members)

    def torch_pids(self) -> tuple[int, ...]:
        return self.pids() if self._torch else ()

    def forked_pids(self) -> tuple[int, ...]:
        return self._forked

    def parent_of(self, pid: int) -> int | None:
        return None


class Program:
    """A Python program that does one step whenever it is asked to, and says when it has done it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.pid = process.pid

    def step(self) -> str:
        """Lets it do the next step; returns what it printed when it was done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def program(code: str) -> Iterator[Program]:
    """Starts ``code``, in which ``done(text)`` ends a step and waits for the next."""
    prelude = "import os, sys, time\n"
    prelude += "def done(*text):\n    print(*text, flush=True)\n    sys.stdin.readline() or sys.exit()\n"
    with subprocess.Popen(
        [sys.executable, "-c", f"{prelude}sys.stdin.readline()\n{code}\ndone()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


def opened(probe: Probe, *pids: int) -> list[Sample]:
    """What a probe says when it begins to watch these processes."""
    return list(probe.open(Watched(*pids)))


def looked(probe: Probe) -> list[Sample]:
    """One look."""
    return list(probe.sample(now_ns()))


def readings(samples: Iterable[Sample]) -> dict[tuple[str, str], float | None]:
    """Values by subject and name."""
    return {(sample.subject, sample.name): sample.value for sample in samples if isinstance(sample, Reading)}


def number(samples: Iterable[Sample], subject: str, name: str) -> float:
    """One value, which must have been read."""
    value = readings(samples)[subject, name]
    assert value is not None, (subject, name)
    return value


def facts(samples: Iterable[Sample]) -> dict[tuple[str, str], str]:
    """Facts by subject and name."""
    return {(sample.subject, sample.name): sample.value for sample in samples if isinstance(sample, Fact)}


def complaints(samples: Iterable[Sample]) -> list[Unavailable]:
    """What could not be seen."""
    return [sample for sample in samples if isinstance(sample, Unavailable)]


def plant(root: Path, files: dict[str, str]) -> Path:
    """Writes a tree of files, such as a recorded /proc and /sys."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def remove_group(folder: Path) -> None:
    """Removes a control group once its last process is gone."""

    def removed() -> bool:
        try:
            folder.rmdir()
        except OSError:
            return False
        return True

    assert until(removed)


def as_nobody(code: str, *arguments: str) -> str:
    """What a program prints that gives up all rights where it says ``give_up()``.

    It imports what it needs before that: the packages may lie where only their owner may read.
    """
    prelude = (
        "import os, sys\n"
        "def give_up():\n"
        f"    os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", prelude + code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return finished.stdout
