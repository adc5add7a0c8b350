"""The tables of a live view: which columns have room, and how their values are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from perfdoctor.reports.text import clean
from perfdoctor.reports.wording import live_words
from perfdoctor.reports.wrapping import fitted
from perfdoctor.results.view import ProcessView, ThreadView, View

_UNKNOWN = "-"
_UNITS = ("", "K", "M", "G", "T", "P")
_ROOM = 16  # columns that the last one has at least


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its key in ``COLUMNS`` of the words.
        width: in characters; 0 for the last one, which has what is left.
        write: the value in a row.
        left: its values begin at its left border.
    """

    name: str
    width: int
    write: Callable[[Any], str]
    left: bool = False

    def title(self) -> str:
        """Its heading, as wide as the column."""
        return self._fit(live_words().COLUMNS[self.name])

    def cell(self, of: Any) -> str:
        """Its value in a row, as wide as the column."""
        return self._fit(clean(self.write(of)))

    def _fit(self, text: str) -> str:
        return fitted(text, self.width, left=self.left) if self.width else text


def row(columns: Iterable[Column], of: ProcessView | ThreadView) -> str:
    """A line of a table."""
    return " ".join(column.cell(of) for column in columns)


def columns_of_processes(view: View, width: int) -> list[Column]:
    """The columns that have room, the important ones first to stay; those without any value are left out."""
    steps = any(process.steps is not None for process in view.processes)
    on_gpu = any(process.gpus for process in view.processes)
    wanted = [
        (0, Column("pid", 7, lambda one: str(one.pid))),
        (0, Column("role", 10, _role, left=True)),
        (0, Column("state", 8, lambda one: live_words().STATES[one.main.state], left=True)),
        (0, Column("cpu", 5, lambda one: _percent(one.cores))),
        (1, Column("delay", 6, lambda one: _percent(one.main.delay))),
        (3, Column("blocked", 6, lambda one: _percent(one.main.blocked))),
        (2, Column("memory", 6, lambda one: short_size(one.memory))),
        (9, Column("shared", 6, lambda one: short_size(one.shared_memory))),
        (4, Column("read", 7, lambda one: short_size(one.read))),
        (5, Column("write", 7, lambda one: short_size(one.write))),
        (8, Column("called", 7, lambda one: short_size(one.called))),
        (10, Column("faults", 7, lambda one: _number(one.faults))),
        (7, Column("threads", 4, lambda one: _number(one.thread_count))),
        (6, Column("age", 6, lambda one: _age(one.age_s))),
    ]
    if steps:
        wanted.insert(4, (1, Column("steps", 7, lambda one: _number(one.steps))))
    if on_gpu:
        wanted.insert(4, (1, Column("gpu", 5, lambda one: ",".join(gpu.partition(":")[2] for gpu in one.gpus))))
        wanted.insert(5, (2, Column("gpu_memory", 7, lambda one: short_size(one.gpu_memory))))
    return [*_with_room(wanted, width), Column("in", 0, lambda one: _call(one.main), left=True)]


def _with_room(wanted: Sequence[tuple[int, Column]], width: int) -> list[Column]:
    """Those that fit into so many columns, the lowest numbers first, in their order."""
    left, kept = width - _ROOM, set()
    for _, column in sorted(wanted, key=lambda one: one[0]):
        left -= column.width + 1
        if left < 0:
            break
        kept.add(column.name)
    return [column for _, column in wanted if column.name in kept]


def columns_of_threads(width: int) -> list[Column]:
    """The columns of a process's threads."""
    wanted = [
        (0, Column("tid", 7, lambda one: str(one.tid))),
        (0, Column("name", 16, lambda one: one.name, left=True)),
        (0, Column("state", 8, lambda one: live_words().STATES[one.state], left=True)),
        (0, Column("cpu", 5, lambda one: _percent(one.cores))),
        (1, Column("delay", 6, lambda one: _percent(one.delay))),
        (2, Column("blocked", 6, lambda one: _percent(one.blocked))),
    ]
    return [*_with_room(wanted, width), Column("in", 0, _call, left=True)]


def _role(process: ProcessView) -> str:
    rank = "" if process.rank is None else f" {process.rank}"
    role: str = live_words().ROLES[process.role]
    return role + rank


def _call(thread: ThreadView) -> str:
    """The system call, and what it is about."""
    kind, _, path = thread.target.partition(":")
    return f"{thread.call} {path if kind == 'file' else thread.target}".strip()


def short_size(count: float | None) -> str:
    """Bytes as top and htop write them: ``812``, ``1.2G``; ``-`` where they are unknown."""
    if count is None:
        return _UNKNOWN
    for unit in _UNITS:
        if count < 999.5:
            return f"{count:.0f}{unit}" if count >= 9.95 or not unit else f"{count:.1f}{unit}"
        count /= 1024
    return f"{count:.0f}E"


def _percent(fraction: float | None) -> str:
    return _UNKNOWN if fraction is None else f"{100 * fraction:.0f}"


def _number(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else f"{value:.0f}"


def _age(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"
