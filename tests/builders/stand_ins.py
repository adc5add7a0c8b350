"""An accelerator that this machine lacks: a stream that keeps its own time, and works beside the host.

It stands at the one seam, ``perfdoctor.probes.inside.device_clock.Accelerator``. What it shows is what perfdoctor makes
of such a device, and not how one behaves.
"""

import time
from collections.abc import Callable

MS = 1_000_000


class Stream:
    """Work that was asked for, done one after the other.

    Attributes:
        drains: how often the host waited for all of it.
    """

    def __init__(self) -> None:
        self.end_ns = 0
        self.drains = 0
        self.made = 0
        self.capturing = False
        self.broken = ""

    def launch(self, ms: float) -> None:
        """Asks for work, and returns at once."""
        self.end_ns = max(time.monotonic_ns(), self.end_ns) + int(ms * MS)

    def event(self) -> "StreamEvent":
        self.made += 1
        return StreamEvent(self)

    def drain(self) -> None:
        self.fail_if_broken()
        self.drains += 1
        time.sleep(max(0, self.end_ns - time.monotonic_ns()) / 1e9)

    def usable(self) -> bool:
        return not self.capturing

    def fail_if_broken(self) -> None:
        if self.broken:
            raise RuntimeError(self.broken)


class StreamEvent:
    """Knows when the stream comes to it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.reached_ns = 0

    def record(self) -> None:
        self.stream.fail_if_broken()
        assert self.stream.usable()
        self.reached_ns = max(time.monotonic_ns(), self.stream.end_ns)

    def query(self) -> bool:
        assert self.stream.usable()
        return time.monotonic_ns() >= self.reached_ns

    def elapsed_time(self, other: "StreamEvent") -> float:
        return (other.reached_ns - self.reached_ns) / MS


class MarkList:
    """Takes what goes into a ring, for parts of perfdoctor that are tested by themselves.

    Attributes:
        marks: time, kind and value of each mark, in the order in which they were made.
        said: the lines of words.
    """

    def __init__(self) -> None:
        self.marks: list[tuple[int, int, int]] = []
        self.said: list[tuple[str | int | None, ...]] = []

    def marker(self, kind: int, value: int = 0) -> Callable[[int], None]:
        return lambda time_ns: self.marks.append((time_ns, kind, value))

    def say(self, *words: str | int | None) -> None:
        self.said.append(words)

    def note(self, reason: str, enable: str = "") -> None:
        self.say("note", reason, enable)

    def name(self, number: int) -> str:
        return str(number)

    def times(self, kind: int, value: int = 0) -> list[int]:
        """When marks of a kind and value were made."""
        return [time_ns for time_ns, *what in self.marks if what == [kind, value]]
