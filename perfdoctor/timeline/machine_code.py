"""Samples of machine code: when, in which thread, and what kind of work it was."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.symbols import CodeKind, classify, is_torch, multiplies, reduces_by_number, walks
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import BY_STOPS, CodeSample


def stopped_s(recording: Recording) -> float | None:
    """For how long threads were stopped to sample their machine code; None where nobody was."""
    stopped = recording.series.get(("perfdoctor", BY_STOPS))
    return stopped[1][-1] if stopped else None


@dataclass(frozen=True)
class CodeSamples:
    """Samples in order of time.

    Attributes:
        times_ns: when each was taken.
        tids: of which thread.
        kinds: as ``perfdoctor.knowledge.symbols`` classifies it, a ``CodeKind`` each.
        multiply: whether arithmetic is of matrix products and the like.
        by_stops: threads were stopped for them at times of the recorder's; else there are ``CODE_FREQUENCY`` in a
            second that a thread spends on a CPU in user mode.
    """

    times_ns: npt.NDArray[np.int64]
    tids: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.object_]
    multiply: npt.NDArray[np.bool_]
    by_stops: bool = False

    @classmethod
    def read(cls, recording: Recording) -> CodeSamples:
        """Those of a recording, with the names that were looked up after they were taken; none without PyTorch's names.

        Those are missing where its files could not be opened, or perfdoctor was killed before it looked them up: then
        arithmetic and calls look alike.
        """
        times, tids, *where = recording.columns(CodeSample, "time_ns", "tid", "image", "offset", "symbol")
        known = _Kinds(recording.symbols)
        places = [*zip(*where, strict=True)]
        kinds = np.array([known[place] for place in places], dtype=object)
        nameless = sum(place in known.nameless for place in places) if known.nameless else 0
        if nameless and nameless > thresholds.MOSTLY * sum(is_torch(image) for image, *_ in places):
            return cls.none()
        by_number = sum(place in known.by_number for place in places) if known.by_number else 0
        if by_number >= max(1.0, thresholds.SHOWN_PART * len(kinds)):
            kinds[[place in known.walks for place in places]] = "kernel"
        by_stops = stopped_s(recording) is not None
        multiply = np.array([place in known.multiplying for place in places], dtype=bool)
        return cls(np.array(times, dtype=np.int64), np.array(tids, dtype=np.int64), kinds, multiply, by_stops)

    @classmethod
    def none(cls) -> CodeSamples:
        """No samples."""
        whole, nothing = np.array([], dtype=np.int64), np.array([], dtype=object)
        return cls(whole, whole, nothing, np.array([], dtype=bool))

    def __len__(self) -> int:
        return len(self.times_ns)

    def of(self, tid: int) -> CodeSamples:
        """Those of one thread."""
        return self._where(self.tids == tid)

    def within(self, from_ns: int, to_ns: int) -> CodeSamples:
        """Those between two instants, which belong to it."""
        return self._where((self.times_ns >= from_ns) & (self.times_ns <= to_ns))

    def of_kind(self, kind: CodeKind) -> CodeSamples:
        """Those of one kind."""
        return self._where(self.kinds == kind)

    def renamed(self, tids: dict[int, int], without: set[int]) -> CodeSamples:
        """The same with those of some threads under other ids, and without those of others.

        Args:
            tids: old ids to new ones.
            without: ids as they were.
        """
        kept = self._where(~np.isin(self.tids, list(without)))
        moved = kept.tids.copy()
        for old, new in tids.items():
            moved[kept.tids == old] = new
        return replace(kept, tids=moved)

    def _where(self, chosen: npt.NDArray[np.bool_]) -> CodeSamples:
        return replace(
            self,
            times_ns=self.times_ns[chosen],
            tids=self.tids[chosen],
            kinds=self.kinds[chosen],
            multiply=self.multiply[chosen],
        )


class _Kinds(dict[tuple[str, int, str], CodeKind]):
    """Kinds of code by image, offset and the symbol that was sampled; each is determined once.

    Attributes:
        by_number: of these, what sets reductions up for each number that they put out.
        walks: what goes over elements, in such a reduction for each number and in all operations once.
        multiplying: what is of matrix products and the like.
        nameless: of PyTorch's code, what no name is known of at all.
    """

    def __init__(self, looked_up: dict[tuple[str, int], str]) -> None:
        super().__init__()
        self._looked_up = looked_up
        self.by_number, self.walks = set[tuple[str, int, str]](), set[tuple[str, int, str]]()
        self.nameless, self.multiplying = set[tuple[str, int, str]](), set[tuple[str, int, str]]()

    def __missing__(self, place: tuple[str, int, str]) -> CodeKind:
        image, offset, symbol = place
        name = symbol or self._looked_up.get((image, offset), "")
        kind = classify(image, name)
        if not name and is_torch(image):
            self.nameless.add(place)
        elif reduces_by_number(name):
            self.by_number.add(place)
        elif walks(name):
            self.walks.add(place)
        if multiplies(image, name):
            self.multiplying.add(place)
        self[place] = kind
        return kind
