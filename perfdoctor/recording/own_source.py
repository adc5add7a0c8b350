"""What of the job's own source a recording keeps: rows of tables, as those in ``schema.py``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar


class SourceLine(NamedTuple):
    """A line of the job's own source, near one that its stacks name, as it stood when the watching ended.

    Attributes:
        file: as stacks name it.
        line: its number, from 1.
        text: without its line break, secrets masked, and cut where it is long.
        changed: the file was written after the process that ran it had been started.
    """

    file: str
    line: int
    text: str
    changed: bool


class SourceCall(NamedTuple):
    """A call in the job's own source as it stood when the watching ended.

    It is one that advice may change, that begins a backward pass, that takes gradients through which one goes later,
    that pads every text to one length, or whose gradients nobody uses.

    Attributes:
        file: as stacks name it.
        line: at which the text begins, from 1.
        text: the statement that the call stands in where that is a simple one, else the call itself.
        callee: the last name of what is called.
        function: that it is written in, as frames name it, without its class.
        used: whether the loop that trains goes over what the call made; of an optimizer and of a module, whether all
            gradients are used; None where that is not clear.
    """

    file: str
    line: int
    text: str
    callee: str
    function: str
    used: bool | None

    @property
    def place(self) -> str:
        """Where it is, as lines of the job's own code are written."""
        return f"{self.file}:{self.line} {self.function}"

    @property
    def is_unused(self) -> bool:
        """Whether it is known that what goes with it is not used, as ``used`` says."""
        return self.used is not None and not self.used  # SQLite has numbers for both


class SourceLoop(NamedTuple):
    """A loop in the job's own source, or a comprehension, that does not go over what it calls, as layers or transforms.

    Attributes:
        file: as stacks name it.
        line: its first, from 1.
        last_line: its last.
        carries: a round needs what the one before it has made, so that not all can be one operation.
    """

    file: str
    line: int
    last_line: int
    carries: bool


class SourceComprehension(NamedTuple):
    """A comprehension in the job's own source that ``SourceLoop`` has as well: other calls may stand around it.

    Attributes:
        file: as stacks name it.
        line: its first, from 1.
        last_line: its last.
        calls: the last names of what its rounds call, separated by spaces.
    """

    file: str
    line: int
    last_line: int
    calls: str


class SourceDraw(NamedTuple):
    """Lines of the job's own that run after something was drawn at random: each time they may give another result.

    Attributes:
        file: as stacks name it.
        line: at which it is drawn, from 1.
        last_line: of the round of the loop that it is drawn in, or else of the function.
        in_loop: which of the two.
    """

    file: str
    line: int
    last_line: int
    in_loop: bool


class SourceRounds(NamedTuple):
    """Lines in a loop of the job's own that run in every n-th of its rounds only.

    Attributes:
        file: as stacks name it.
        line: their first, from 1.
        last_line: their last.
        loop_line: the loop's first.
        loop_last_line: the loop's last.
        when: in which rounds, as a condition in Python.
    """

    file: str
    line: int
    last_line: int
    loop_line: int
    loop_last_line: int
    when: str


class SourceOnce(NamedTuple):
    """Lines in a loop of the job's own that run once for all rounds of another loop in it, as for an epoch.

    They use nothing that the outer loop's round gives, so they are no reading of the next file, for instance.

    Attributes:
        file: as stacks name it.
        line: their first, from 1.
        last_line: their last.
        loop_line: the inner loop's first.
        loop_last_line: the inner loop's last.
    """

    file: str
    line: int
    last_line: int
    loop_line: int
    loop_last_line: int


class SourceState(NamedTuple):
    """A statement in a loop of the job's own that makes something of what the loop changes itself.

    Attributes:
        file: as stacks name it.
        line: its first, from 1.
        last_line: its last.
    """

    file: str
    line: int
    last_line: int


class SourceReadOut(NamedTuple):
    """A function of the job's own that only reads values out of tensors: it returns nothing, and keeps numbers.

    Attributes:
        file: as stacks name it.
        line: its first, from 1.
        last_line: its last.
    """

    file: str
    line: int
    last_line: int


class SourceResult(NamedTuple):
    """A statement in a loop of the job's own that hands over numbers read out of tensors, and takes nothing back.

    Attributes:
        file: as stacks name it.
        line: its first, from 1.
        last_line: its last.
    """

    file: str
    line: int
    last_line: int


class SourceDetour(NamedTuple):
    """Statements of the job's own that do again what was done before, or more than is used.

    Attributes:
        file: as stacks name it.
        line: their first, from 1.
        last_line: their last.
        way: which detour it is, as ``knowledge.detours`` has them.
        kept: what stays, as it is written there: what is joined anew, the table, the layer, what is made again.
        new: what is added to it, or given to it.
        put: how and where the result is put; "" where that needs no saying.
        function: that they are written in, as frames name it, without its class.
    """

    file: str
    line: int
    last_line: int
    way: str
    kept: str
    new: str
    put: str
    function: str


class SourceUnchanged(NamedTuple):
    """A statement of the job's own that makes the same whenever some parameters of its function are the same.

    Attributes:
        file: as stacks name it.
        line: its first, from 1.
        last_line: its last.
        callee: the last name of the function of the job's own in whose call the same is made; "" for all of it.
        needs: those parameters with their places after ``self``, ``"1:edges 2:n"``; "" where it is always the same.
        text: what is made, as it is written.
        key: what it is made of, as Python that another object or another size changes: ``"id(edges), x.size(0)"``.
        put: the place that it is given; ``"return"`` where it is returned; "" where it is part of something.
        function: that it is written in, as frames name it, without its class.
    """

    file: str
    line: int
    last_line: int
    callee: str
    needs: str
    text: str
    key: str
    put: str
    function: str


class SourceGiven(NamedTuple):
    """A call in the job's own source that is given something that never changes while the job trains.

    Attributes:
        file: as stacks name it.
        line: its first, from 1.
        last_line: its last.
        callee: the last name of what is called.
        given: its arguments by place or by name: ``"0 1=1:edges scale="``. What changes has nothing behind it; of what
            does not it is said which parameters, as in ``SourceUnchanged``, have to be the same.
    """

    file: str
    line: int
    last_line: int
    callee: str
    given: str


OwnSource = (
    SourceLine
    | SourceCall
    | SourceLoop
    | SourceComprehension
    | SourceDraw
    | SourceReadOut
    | SourceRounds
    | SourceOnce
    | SourceState
    | SourceResult
    | SourceDetour
    | SourceUnchanged
    | SourceGiven
)


class HowWritten(NamedTuple):
    """What of the job's own source tells how its stacks are to be read."""

    calls: Sequence[SourceCall] = ()
    loops: Sequence[SourceLoop] = ()
    rounds: Sequence[SourceRounds] = ()
    once: Sequence[SourceOnce] = ()
    read_outs: Sequence[SourceReadOut] = ()
    results: Sequence[SourceResult] = ()


NOT_READ = HowWritten()
# The fact about a file, ``file:/path``, of which no line could be read: why.
SOURCE_NOT_READ = "source_not_read"


_Row = TypeVar("_Row", SourceDetour, SourceUnchanged, SourceGiven)


def by_line(rows: Iterable[_Row]) -> Mapping[tuple[str, int], Sequence[_Row]]:
    """Some rows by each line that they are at, with its file."""
    found: defaultdict[tuple[str, int], list[_Row]] = defaultdict(list)
    for row in rows:
        for line in range(row.line, row.last_line + 1):
            found[row.file, line].append(row)
    return found


def lines_of(
    rows: Iterable[SourceLoop | SourceReadOut | SourceRounds | SourceOnce | SourceState | SourceResult],
) -> set[tuple[str, int]]:
    """All lines of some rows, each with its file."""
    return {(row.file, line) for row in rows for line in range(row.line, row.last_line + 1)}
