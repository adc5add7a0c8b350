"""Marks as a training loop with ``diagnose()`` leaves them."""

from perfdoctor.recording.schema import Mark
from perfdoctor.timeline.marks import Marks, in_order
from perfdoctor.timeline.steps import Steps

MS = 1_000_000


def with_tracks(tracks: dict[str, list[Mark]]) -> Marks:
    """What the marks of one process tell, those of its host's ordinary track under ""."""
    found = in_order(tracks.pop("", []))
    found.tracks = tracks
    return found


class Script:
    """Writes marks as a training loop would."""

    def __init__(self) -> None:
        self.now = 0
        self.marks: list[Mark] = []

    def mark(self, edge: str, what: str, value: int = 0) -> None:
        self.marks.append(Mark(self.now, 1, edge, what, value))

    def wait(self, ms: float) -> None:
        self.now += int(ms * MS)

    def call(self, what: str, ms: float, begin: int = 0, end: int = 0) -> None:
        self.mark("begin", what, begin)
        self.wait(ms)
        self.mark("end", what, end)

    def train(self) -> None:
        """18 ms: loss 1, forward 4, backward 8, optimizer 2, the rest other."""
        self.call("forward", 4, 3)
        self.wait(1)
        self.call("backward", 8)
        self.wait(3)
        self.call("optimizer", 2)

    def ends(self) -> None:
        self.mark("point", "step")

    def validate(self) -> None:
        self.call("loader start", 1)
        for _ in range(3):
            self.call("data", 5)
            self.call("forward", 4)
        self.call("data", 1, end=2)

    def steps(self) -> Steps:
        return Steps(in_order(self.marks))
