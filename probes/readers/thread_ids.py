"""Ids of a process's threads, as we see them and as its own pid namespace counts."""

import os
from pathlib import Path

# In a namespace of its own each thread has to be asked for its id there, some 30 µs each: so many at a time.
_ASKED_AT_ONCE = 1000


class ThreadIds:
    """Finds threads by the id that their own pid namespace gives them.

    Args:
        process: the process's directory in /proc.

    Attributes:
        main: the main thread's id in that namespace.

    Raises:
        OSError: the process is gone.
    """

    def __init__(self, process: Path) -> None:
        self.main = inner_id(process)
        self._same = self.main == int(process.name)
        self._tasks = f"{process}/task"
        self._outer: dict[int, int] = {}  # by the id in its own namespace
        self._asked: set[int] = set()

    def outer(self, inner: int) -> int | None:
        """The id that we see of a thread; None if there is no such thread, or it has not been asked yet."""
        if self._same:
            return inner if os.path.exists(f"{self._tasks}/{inner}") else None
        if inner not in self._outer:
            self._ask_more()
        return self._outer.get(inner)

    def inner(self) -> frozenset[int]:
        """All of them, as their own namespace counts; of many in another namespace, as many as were asked.

        Raises:
            OSError: the process is gone.
        """
        if self._same:
            return frozenset(map(int, os.listdir(self._tasks)))
        self._ask_more()
        return frozenset(self._outer)

    def _ask_more(self) -> None:
        try:
            living = set(map(int, os.listdir(self._tasks)))
        except OSError:
            return
        if gone := self._asked - living:
            self._asked -= gone
            self._outer = {inner: outer for inner, outer in self._outer.items() if outer not in gone}
        for tid in sorted(living - self._asked)[:_ASKED_AT_ONCE]:
            self._asked.add(tid)
            try:
                self._outer[inner_id(Path(self._tasks, str(tid)))] = tid
            except OSError:
                continue  # the thread has just ended


def inner_id(task: Path) -> int:
    """A thread's id in its innermost pid namespace (``NSpid`` in proc(5)).

    Raises:
        OSError: it is gone.
    """
    for line in (task / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return int(task.name)
