"""Which loops of the job's own the time lies in, without those that train, and those over loaders."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, calls_model, is_own, package_of
from perfdoctor.knowledge.libraries import CELLS
from perfdoctor.recording.own_source import SourceComprehension, SourceLoop
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.stacks import Stacks

# What only the loop that trains or evaluates calls: the backward pass, and a loader for its next batch. Gradients that
# stay in the graph are part of what the loss is made of.
_OF_TRAINING = ("backward", "data")


@dataclass(frozen=True, slots=True)
class CostlyLoop:
    """A loop of the job's own that a part of a cause lies in; not the one that trains, nor one over layers.

    Attributes:
        line: its first, as ``lines`` has them.
        part: the fraction of the cause's time, without arithmetic beside the model.
        carries: a round needs what the one before it has made, so that not all can be one operation.
        cell: the layer of torch's that it calls for one piece of a sequence at a time; "" if none.
        computes: the fraction of the cause's time that is arithmetic beside the model.
    """

    line: str
    part: float
    carries: bool = False
    cell: str = ""
    computes: float = 0.0


def in_loop_of_model(frames: Sequence[Frame], depth: int, in_loops: Collection[tuple[str, int]]) -> bool:
    """Whether a frame of a stack is at a line of some loops, below a call of the model: none that trains goes there.

    Args:
        frames: outermost call first.
        depth: of the frame.
        in_loops: lines, each with its file.
    """
    frame = frames[depth]
    return (frame.file, frame.line) in in_loops and calls_model(frames[:depth])


class OwnLoops:
    """The loops that main threads were seen in.

    Args:
        stacks: the job's.
        loops: in its source.
        comprehensions: which of them are such.
    """

    def __init__(
        self, stacks: Stacks, loops: Iterable[SourceLoop], comprehensions: Iterable[SourceComprehension] = ()
    ) -> None:
        called = {(one.file, one.line, one.last_line): frozenset(one.calls.split()) for one in comprehensions}
        by_file: dict[str, list[_Written]] = {}
        for loop in loops:
            calls = called.get((loop.file, loop.line, loop.last_line))
            by_file.setdefault(loop.file, []).append(_Written(loop, calls))
        spent = stacks.spent_ns()
        around = {number: [*_around(stacks.frames[number], by_file)] for number in spent}
        self._train = {
            loop
            for number in spent
            if (where := stacks.locations[number]).phase in _OF_TRAINING and not where.leads_to_backward
            for loop, _ in around[number]
        }
        self._of_cells = _of_cells(stacks, spent, around)
        self._time = Amounts.summed(
            dict.fromkeys((loop for loop, _ in around[number]), amount_ns) for number, amount_ns in spent.items()
        )
        self._by_line: dict[str, Amounts[str]] = {}
        self._carries: dict[str, bool] = {}
        self._cells: dict[str, str] = {}
        for number, amount_ns in spent.items():
            if line := stacks.locations[number].line:
                name = self._loop_that_counts(around[number], stacks.frames[number])
                self._by_line.setdefault(line, Amounts())[name] += amount_ns

    def of(
        self, lines: Mapping[str, float], total: float, beside: Mapping[str, float] | None = None
    ) -> tuple[CostlyLoop, ...]:
        """The loops that lines ran in, those with most of their time first.

        Of several around a line in one function those count whose rounds do not need each other, or else the innermost:
        what is recursive in time is often the same for many samples. Of them it is the innermost that holds nearly all
        of what the outermost does: where several loops follow each other in one, that one goes with them.

        Args:
            lines: of the job's own, ``"file.py:12 function"`` to its amount.
            total: what the parts are of.
            beside: what of the lines' amounts is arithmetic beside the model.
        """
        whole, computes = self._by_loop(lines), self._by_loop(beside or {})
        found = sorted(whole.items(), key=lambda one: -one[1])
        return tuple(
            CostlyLoop(
                name,
                max(0.0, amount - computes[name]) / total,
                self._carries[name],
                self._cells[name],
                min(amount, computes[name]) / total,
            )
            for name, amount in found
        )

    def _by_loop(self, lines: Mapping[str, float]) -> Amounts[str]:
        """What lines have, by the names of the loops that they ran in."""
        parts = []
        for line, amount in lines.items():
            fractions = Amounts(self._by_line.get(line, {})).fractions()
            parts.append({name: part * amount for name, part in fractions.items() if name})
        return Amounts.summed(parts)

    def _loop_that_counts(self, around: list[tuple[SourceLoop, Frame]], frames: Iterable[Frame]) -> str:
        """The name of the loop that counts; "" if none does."""
        inside = [(loop, frame) for loop, frame in reversed(around) if loop not in self._train]
        if not inside:
            return ""
        (loop, frame), cell = inside[0], next(_cells(frames), "")
        cell = cell if loop in self._of_cells else ""
        apart = [other for other, around in inside if around == frame and not other.carries]
        if apart and not cell:
            least = thresholds.NEARLY_WHOLE_LOOP * self._time[apart[-1]]
            loop = next(other for other in apart if self._time[other] >= least)
        name = f"{loop.file}:{loop.line} {_function(frame)}"
        self._carries[name], self._cells[name] = loop.carries, cell or self._cells.get(name, "")
        return name


def _function(frame: Frame) -> str:
    """The function that a loop is in; a comprehension's is the one around it."""
    return _INNER.sub("", frame.function)


def _of_cells(
    stacks: Stacks, spent: Mapping[int, float], around: Mapping[int, list[tuple[SourceLoop, Frame]]]
) -> set[SourceLoop]:
    """The loops around layers for one piece of a sequence in which these take most of the time.

    What else a round computes may make the next piece, which a layer over the whole sequence has no place for.
    """
    all_of, in_cells = Amounts[SourceLoop](), Amounts[SourceLoop]()
    for number, amount_ns in spent.items():
        has_cell = any(_cells(stacks.frames[number]))
        for loop in {loop for loop, _ in around[number]}:
            all_of[loop] += amount_ns
            in_cells[loop] += amount_ns * has_cell
    return {loop for loop, amount in in_cells.items() if amount and amount >= thresholds.MOSTLY * all_of[loop]}


def _cells(frames: Iterable[Frame]) -> Iterator[str]:
    """Layers of torch's on a stack that compute one piece of a sequence at a time."""
    for frame in frames:
        layer = frame.function.partition(".")[0]
        if layer in CELLS and package_of(frame.file) == "torch":
            yield layer


class _Written(NamedTuple):
    """A loop.

    Attributes:
        loop: it.
        calls: the last names of what its rounds call, if it is a comprehension.
    """

    loop: SourceLoop
    calls: frozenset[str] | None

    def is_around(self, frames: Sequence[Frame], depth: int) -> bool:
        """Whether a frame of a stack is in it, and not in a call that is given what a comprehension makes."""
        frame = frames[depth]
        if not self.loop.line <= frame.line <= self.loop.last_line:
            return False
        below = frames[depth + 1].simple_name if depth + 1 < len(frames) else ""
        own_frame = frame.simple_name in _COMPREHENSIONS or below in _COMPREHENSIONS
        if self.calls is None or own_frame or not below:
            return True
        return below in self.calls or (bool(self.calls) and below in _UNNAMED)


# Frames of comprehensions, which all have before Python 3.12, and what their names add to that of the function around.
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
_INNER = re.compile(rf"(\.<locals>\.({'|'.join(sorted(_COMPREHENSIONS))}))+$")
# Calls by other names: of classes, of objects and modules, and of what is decorated.
_UNNAMED = frozenset((
    "__init__", "__call__", "_call_impl", "_wrapped_call_impl", "decorate_context", "inner", "<lambda>",
))  # fmt: skip


def _around(frames: Sequence[Frame], by_file: Mapping[str, list[_Written]]) -> Iterator[tuple[SourceLoop, Frame]]:
    """The loops that the job's own code on a stack is in, the outermost first."""
    for depth, frame in enumerate(frames):
        if is_own(frame):
            inside = [one.loop for one in by_file.get(frame.file, ()) if one.is_around(frames, depth)]
            for loop in sorted(inside, key=lambda one: one.line - one.last_line):
                yield loop, frame
