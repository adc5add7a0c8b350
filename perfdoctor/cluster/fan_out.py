"""Calls one function for thousands of files: in processes of this machine, or on a Dask cluster.

Whoever schedules them is ``concurrent.futures`` or Dask. Only so many calls are under way that all places have work, so
that nothing piles up here, and a call that fails, or whose process is killed, costs its own result and no other.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from perfdoctor import __version__
from perfdoctor.errors import PerfDoctorError

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2  # calls for each place: one under way, one waiting
_CONNECT_S = 10.0  # for a scheduler to answer; judgement
_CHECK_S = 2.0  # between two checks of whether the workers are still there; judgement


@dataclass(frozen=True, slots=True)
class Done(Generic[T, R]):
    """What came of one call.

    Attributes:
        result: what the function returned; None if it failed.
        why: why it failed, in a sentence; "" if it did not.
    """

    item: T
    result: R | None
    why: str = ""


class Engine(Protocol):
    """Where calls run."""

    @property
    def places(self) -> int:
        """How many calls can run at once."""

    def open(self, places: int) -> Executor:
        """Starts them; leaving it as a context ends what was started."""

    def require_alive(self) -> None:
        """Makes sure that what was submitted can still come to an end.

        Raises:
            PerfDoctorError: it cannot.
        """


class ProcessPool:
    """Processes of this machine.

    Attributes:
        places: how many.
    """

    def __init__(self, places: int) -> None:
        self.places = places

    def open(self, places: int) -> Executor:
        """A pool of new processes, which inherit nothing from this one."""
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(places, mp_context=context, initializer=_leave_interrupts)

    def require_alive(self) -> None:
        """A pool that broke says so itself."""


def _leave_interrupts() -> None:
    """Ctrl-C ends the parent, which then ends the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Dask:
    """The workers of a Dask cluster that somebody has started.

    Args:
        address: of its scheduler, ``tcp://head:8786`` for instance.

    Raises:
        PerfDoctorError: it cannot be reached, has no workers, or these lack this version of perfdoctor.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise PerfDoctorError(
                "Dask is not installed.", hint="pip install 'perfdoctor[dask]', here and on all workers"
            ) from None
        self._address = address
        try:
            self._client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            raise PerfDoctorError(
                f"There is no Dask scheduler at {address}: {why}.",
                hint="Start one with `dask scheduler`, workers with `dask worker ADDRESS`, or leave out --scheduler.",
            ) from None
        self._require_workers()

    def _require_workers(self) -> None:
        threads = self._client.nthreads()
        self.places = sum(threads.values())
        if not self.places:
            raise PerfDoctorError(
                f"The Dask scheduler at {self._address} has no workers.",
                hint=f"On each machine: dask worker {self._address} --nthreads 1 --nworkers auto",
            )
        versions: Any = self._client.get_versions(packages=["perfdoctor"])
        wrong = {address: one["packages"].get("perfdoctor") for address, one in versions["workers"].items()}
        wrong = {address: version for address, version in wrong.items() if version != __version__}
        if wrong:
            address, version = next(iter(wrong.items()))
            has = f"has perfdoctor {version}" if version else "lacks perfdoctor"
            raise PerfDoctorError(
                f"The Dask worker at {address} {has}, and this is {__version__}.",
                hint=f"Install perfdoctor {__version__} on all workers.",
            )

    def open(self, places: int) -> Executor:
        """Its workers, as an executor; calls on a worker that goes away run again on another one."""
        executor: Executor = self._client.get_executor(pure=False)
        return executor

    def require_alive(self) -> None:
        """Asks whether the scheduler still answers.

        Raises:
            PerfDoctorError: it does not.
        """
        if self._client.status != "running":
            raise PerfDoctorError(
                f"The Dask scheduler at {self._address} has gone away.",
                hint="Start it again and repeat the command: what was summarised is kept.",
            )

    def close(self) -> None:
        """Leaves the cluster as it was."""
        self._client.close()


def fan_out(function: Callable[[T], R], items: Sequence[T], engine: Engine) -> Iterator[Done[T, R]]:
    """Calls a function for each item, in no particular order.

    Args:
        function: at the top of a module, so that other processes find it.
        items: its arguments; what fails for one is reported with it.
        engine: where the calls run.

    Raises:
        PerfDoctorError: the engine is gone.
    """
    left = deque(items)
    while left:
        suspects: list[T] = []
        yield from _until_broken(function, left, suspects, engine, engine.places)
        for suspect in suspects:  # one of them broke the pool: by itself it can only break its own
            alone, broke = deque([suspect]), list[T]()
            yield from _until_broken(function, alone, broke, engine, 1)
            if broke:
                yield Done(suspect, None, "the process that read it was killed, for want of memory perhaps")


def _until_broken(
    function: Callable[[T], R], left: deque[T], suspects: list[T], engine: Engine, places: int
) -> Iterator[Done[T, R]]:
    """Calls until nothing is left, or a process dies; then what was under way is appended to the suspects."""
    under_way: dict[Future[R], T] = {}
    with engine.open(places) as executor:
        try:
            while left or under_way:
                while left and len(under_way) < _AHEAD * places:
                    under_way[executor.submit(function, left[0])] = left[0]
                    left.popleft()
                finished, _ = wait(under_way, timeout=_CHECK_S, return_when=FIRST_COMPLETED)
                if not finished:
                    engine.require_alive()
                for future in finished:
                    done = _outcome(future, under_way[future], engine)
                    del under_way[future]
                    yield done
        except BrokenProcessPool:
            suspects += under_way.values()
        finally:
            for future in under_way:
                future.cancel()


def _outcome(future: Future[R], item: T, engine: Engine) -> Done[T, R]:
    """What came of a call.

    Raises:
        BrokenProcessPool: a process of the pool died.
        PerfDoctorError: the engine is gone.
    """
    try:
        error = future.exception()
    except CancelledError:  # nobody here cancels what is under way
        engine.require_alive()
        return Done(item, None, "its call was cancelled")
    if error is None:
        return Done(item, future.result())
    if isinstance(error, BrokenProcessPool):
        raise error
    message = str(error).partition("\n")[0]
    return Done(item, None, message if isinstance(error, PerfDoctorError) else f"{type(error).__name__}: {message}")
