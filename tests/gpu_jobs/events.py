"""The clock of a simulated job: tasks that take time or wait for one another, in the order in which that ends.

A task is a generator. It yields a number (let so many ns pass) or a ``Signal`` (wait until somebody fires it), and may
delegate with ``yield from``.
"""

import heapq
from collections.abc import Callable, Generator
from itertools import count

MS = 1_000_000
US = 1_000
S = 1_000_000_000


class Signal:
    """Something that tasks wait for; each firing wakes those that wait just then."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def fire(self) -> None:
        """Wakes all who wait."""
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def call(self, wake: Callable[[], None]) -> None:
        """Has a function called at the next firing."""
        self._waiting.append(wake)


Task = Generator["int | Signal", None, None]


class Simulation:
    """Runs tasks.

    Attributes:
        now: the time in ns; 0 is the beginning of the recording, and the job begins before that.
    """

    def __init__(self, start_ns: int) -> None:
        self.now = start_ns
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._number = count()

    def spawn(self, task: Task) -> None:
        """Begins a task now."""
        self.at(self.now, lambda: self._step(task))

    def at(self, time_ns: int, call: Callable[[], None]) -> None:
        """Has a function called at an instant."""
        heapq.heappush(self._due, (time_ns, next(self._number), call))

    def run(self, until_ns: int) -> None:
        """Lets time pass."""
        due = self._due
        while due and due[0][0] <= until_ns:
            self.now, _, call = heapq.heappop(due)
            call()
        self.now = until_ns

    def _step(self, task: Task) -> None:
        for asked in task:
            if isinstance(asked, Signal):
                asked.call(lambda: self._step(task))
            else:
                self.at(self.now + asked, lambda: self._step(task))
            return
