"""``with diagnose():`` in a training script: watches some steps from inside, says what holds them back, detaches.

    from perfdoctor import diagnose

    for batch in loader:
        with diagnose():        # around one step, or around the whole loop; or as a decorator of a step function
            ...

Where a ``with`` is awkward, ``doctor = diagnose()`` has ``doctor.start()``, ``doctor.step()`` at the end of each step,
and ``doctor.stop()``.

The verdict appears on stderr and in ``perfdoctor-report.html``, written by a sidecar process. Nothing here raises into
the training loop, and ``PERFDOCTOR_DISABLE=1`` makes all of it do nothing. After it has detached nothing of it is left
in the training process: torch is as it was, and a ``with diagnose():`` that is still there does nothing.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from types import TracebackType
from typing import Any, TypeVar

from perfdoctor.probes.inside.options import Options
from perfdoctor.probes.inside.ring import BEGIN, END, KINDS
from perfdoctor.probes.inside.session import Session
from perfdoctor.probes.inside.sidecar_process import allow_tracer
from perfdoctor.probes.inside.training_loop import TrainingLoop

F = TypeVar("F", bound=Callable[..., Any])

# How long the end of the training script waits for the report: it is made in some seconds, and in a container the
# end of the script may be the end of everything.
REPORT_WAIT_S = 30.0

# Those of the phases that a user may name which are marked anyway.
_PHASES = {name: KINDS.index(name) for name in (*KINDS[1:8], "transfer")}

# The session of this process, also when it is over: it has the diagnosis.
_session: Session | None = None
# Its training loop, while it is watched. Another thread may detach at any time: it is read once.
_loop: TrainingLoop | None = None
# The files that were asked for, as they were named: asking a list is no call, and takes what has no hash.
_asked: list[Any] = [None]
_MOST_ASKED = 8
# Why nothing is watched in this process, or nothing more; "" as long as something is, or may be.
_closed = ""
_DETACHED = "detached"
_DISABLED = "disabled"
_forked = False
_lock = threading.Lock()


class Diagnose:
    """What ``diagnose()`` gives: a context manager and a decorator; all of a process share one session."""

    __slots__ = ("_options", "_started")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._started = False

    def __enter__(self) -> Diagnose:
        loop = _loop
        if loop is not None:
            loop.enter()
        elif not _closed:
            _begin(self._options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = _loop
        if loop is not None:
            loop.leave()

    def __call__(self, function: F) -> F:
        """Makes every call of a function one step; of a generator, from its first value asked for to its end."""
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def steps(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return (yield from function(*args, **kwargs))

            return steps  # type: ignore[return-value]

        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return step  # type: ignore[return-value]

    def start(self) -> None:
        """Begins, where a ``with`` around the loop is awkward; ``step()`` then says where each step ends."""
        self.stop()
        self._started = True
        loop = _loop
        if loop is not None:
            loop.enter(reported=True)
        elif not _closed:
            _begin(self._options, reported=True)

    def step(self) -> None:
        """Ends a step; inside of ``with diagnose()`` around the loop too, where perfdoctor cannot tell steps apart."""
        loop = _loop
        if loop is not None:
            loop.step()

    def stop(self) -> None:
        """Ends what ``start()`` began: what comes until the next ``start()`` belongs to no step."""
        if self._started:
            self._started = False
            self.__exit__(None, None, None)

    @property
    def diagnosis(self) -> dict[str, Any] | None:
        """The diagnosis, as the JSON report has it; None until it is there."""
        session = _session
        return None if session is None or session.sidecar is None else session.sidecar.diagnosis()

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from perfdoctor.reports import notebook, reading

        document = self.diagnosis
        return notebook.NOT_YET if document is None else notebook.render(reading.diagnosis_of(document))


class Phase:
    """What ``phase()`` gives: names a part of a training step."""

    __slots__ = ("_name", "_number")

    def __init__(self, name: str) -> None:
        self._name = name if isinstance(name, str) else str(name)
        self._number: int | None = None

    def __enter__(self) -> None:
        loop, session = _loop, _session
        if loop is not None and session is not None and loop.thread == get_ident():
            self._number = _PHASES.get(self._name) or session.own_phase(self._name)
            if self._number is not None:
                loop.marker(BEGIN | self._number)(monotonic_ns())

    def __exit__(self, *_: object) -> None:
        loop = _loop
        if self._number is not None and loop is not None:
            loop.marker(END | self._number)(monotonic_ns())


def diagnose(
    *,
    steps: int | None = None,
    warmup: int = 3,
    report: str | os.PathLike[str] | None = "perfdoctor-report.html",
    json: str | os.PathLike[str] | None = None,
    recording: str | os.PathLike[str] | None = None,
    profile: int | None = None,
    confirm: bool = False,
    serialise: bool = True,
    lang: str | None = None,
    source: bool = True,
    treat: bool | str = False,
    treat_minutes: float = 3.0,
) -> Diagnose:
    """Diagnoses the training loop that it is wrapped around.

    When enough was seen it detaches, and leaves nothing behind in the training process: no patch of torch, no hook, no
    thread. What is still called does nothing.

    Args:
        steps: how many steps to observe; None for 15 seconds, and at least 10 steps.
        warmup: how many steps to leave out at the beginning; the sidecar's start is always left out.
        report: where to write the HTML report; None for none.
        json: where to write the JSON report.
        recording: where to keep the recording, for ``perfdoctor report``.
        profile: how many steps to profile with torch.profiler after the observed ones; None for up to 5, 0 for none.
        confirm: whether to measure what the input costs by some steps on one batch that is kept in memory. This changes
            the training by as many steps: the loader's batches, their order and its random state stay as they are.
        serialise: whether to isolate the phases of 4 steps, where there is an accelerator or more than one rank.
        lang: language of the reports, ``en`` or ``zh``; None for that of the locale, and English in JSON.
        source: whether report and recording hold some lines of the source around those that cost most, secrets masked.
        treat: whether to try, after the diagnosis, changes that can be made between steps and taken back, in blocks of
            steps between blocks without: those with which the results are the same to the last bit; with
            ``"within noise"`` those too that may round differently. Only in a job of one rank.
        treat_minutes: how long that may take.
    """
    if _closed or _loop is not None:
        if json not in _asked or recording not in _asked:
            _say_what_is_not_written(json, recording)
        return _shared
    _asked.extend((json, recording))
    try:
        asked = Options(
            *(steps, warmup, report, json, recording, profile, confirm, serialise, lang, source, treat, treat_minutes)
        )
        return Diagnose(asked)
    except (TypeError, ValueError) as error:
        _close(f"perfdoctor does not watch: {error}", stacklevel=3)
        return _shared


def _say_what_is_not_written(*files: Any) -> None:
    """Warns once of each file that another diagnosis was to write than the process's first one."""
    if len(_asked) > _MOST_ASKED:  # a name of its own for each step, perhaps
        return
    unwritten = [file for file in files if file not in _asked]
    _asked.extend(unwritten)
    if _closed in ("", _DETACHED):
        names = " and ".join(map(str, unwritten))
        why = (
            f"perfdoctor diagnoses a process once, with the files of the first diagnose(): {names} will not be written."
        )
        warnings.warn(why, RuntimeWarning, stacklevel=3)


def phase(name: str) -> Phase:
    """Names a part of the step, such as ``"augment"``; shown among the phases. Nothing outside of a diagnosis."""
    return Phase(name)


# Given where its options are of no use.
_shared = Diagnose(Options(report=None))


def _begin(options: Options, *, reported: bool = False) -> None:
    """Begins the process's one session, and enters its loop; if there can be none, the reason is said once."""
    with _lock:
        if _loop is None and not _closed:
            problem = _why_not() or _start(options)
            if problem:
                _close(problem, stacklevel=4)
    loop = _loop
    if loop is not None:
        loop.enter(reported=reported)


def _why_not() -> str:
    if os.environ.get("PERFDOCTOR_DISABLE", "0") not in ("", "0"):
        return _DISABLED
    if not sys.platform.startswith("linux"):
        return f"perfdoctor watches on Linux only; this is {sys.platform}."
    if "torch" not in sys.modules:
        return "perfdoctor does not watch: nothing has imported torch."
    if _forked:
        return "perfdoctor watches the process that this one was forked from, and not this one."
    if sys.modules["torch"].utils.data.get_worker_info() is not None:
        return "perfdoctor does not watch loader workers: use diagnose() in the training loop."
    return ""


def _start(options: Options) -> str:
    """Starts the session; returns why it cannot."""
    global _session, _loop
    session = None
    try:
        session = Session(options, _detached)
        session.start()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with perfdoctor must not end the training
        if session is not None:
            session.finish()
        return f"perfdoctor does not watch: {type(error).__name__}: {error}"
    _session, _loop = session, session.loop
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork)
    return ""


def _close(why: str, *, stacklevel: int) -> None:
    """Nothing is watched in this process, and that is said once."""
    global _closed
    _closed = why
    if why != _DISABLED:
        warnings.warn(why, RuntimeWarning, stacklevel=stacklevel)


def _detached() -> None:
    """Nothing is watched any more."""
    global _loop, _closed
    _loop, _closed = None, _DETACHED


def _after_fork() -> None:
    """A forked child is not the one that is watched; where Yama asks, the sidecar may look at it as well."""
    global _session, _closed, _forked
    if _session is not None:
        _session.after_fork()
        _session, _closed, _forked = None, "", True


def _at_exit() -> None:
    """Lets the sidecar end its work, and says so if it could not."""
    session = _session
    if session is None or session.pid != os.getpid() or session.sidecar is None:
        return
    session.finish()
    session.sidecar.wait(REPORT_WAIT_S)
    lost = session.sidecar.lost()
    if lost and sys.stderr is not None:
        print(f"perfdoctor: there is no report: {lost}.", file=sys.stderr)
    session.clear()
    allow_tracer(0)
