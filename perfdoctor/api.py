"""``with diagnose():`` in a training script: watches some steps from inside, says what holds them back, steps aside.

    from perfdoctor import diagnose

    for batch in loader:
        with diagnose():        # around one step, or around the whole loop; or as a decorator of a step function
            ...

Where a ``with`` is awkward, ``doctor = diagnose()`` has ``doctor.start()``, ``doctor.step()`` at the end of each step,
and ``doctor.stop()``.

The verdict appears on stderr and in ``perfdoctor-report.html``, written by a sidecar process. Nothing here raises into
the training loop, and ``PERFDOCTOR_DISABLE=1`` makes all of it do nothing.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable
from operator import index
from pathlib import Path
from threading import get_ident
from time import monotonic_ns
from types import TracebackType
from typing import Any, TypeVar

from perfdoctor.probes.inside.options import Wishes
from perfdoctor.probes.inside.ring import BEGIN, END, KINDS
from perfdoctor.probes.inside.session import Session
from perfdoctor.probes.inside.sidecar_process import allow_tracer

F = TypeVar("F", bound=Callable[..., Any])

# How long the end of the training script waits for the report: it is made in some seconds, and in a container the
# end of the script may be the end of everything.
REPORT_WAIT_S = 30.0

# Those of the phases that a user may name which are marked anyway.
_PHASES = {name: KINDS.index(name) for name in (*KINDS[1:8], "transfer")}

_session: Session | None = None
_refused = ""
_forked = False
_lock = threading.Lock()


class Diagnose:
    """What ``diagnose()`` gives: a context manager and a decorator; all of a process share one session.

    The usual ``with`` around one step begins and ends here, and not in methods of the session: after a step of a model
    each call more is found cold.
    """

    __slots__ = ("_started", "_wishes")

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._started = False

    def __enter__(self) -> Diagnose:
        session = _session
        if session is None:
            self._enter()
        elif session.thread == get_ident():
            if session.usual and not session.depth:
                session.depth = 1
                session.entered(monotonic_ns())
            else:
                session.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = _session
        if session is None or session.thread != get_ident():
            return
        if not session.usual or session.depth != 1:
            session.leave()
            return
        session.depth = 0
        time_ns = monotonic_ns()
        session.ended(time_ns)
        session.worked = False
        session.steps += 1
        if time_ns >= session.look_ns or session.steps == session.limit:
            session.look(time_ns)
            time_ns = monotonic_ns()
        session.left_step(time_ns + 1)

    def __call__(self, function: F) -> F:
        """Makes every call of a function one step."""

        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return step  # type: ignore[return-value]

    def start(self) -> None:
        """Begins, where a ``with`` around the loop is awkward; ``step()`` then says where each step ends."""
        self.stop()
        self._started = True
        self._enter(told=True)

    def step(self) -> None:
        """Ends a step; inside of ``with diagnose()`` around the loop too, where perfdoctor cannot tell steps apart."""
        if _session is not None and _session.active:
            _session.step()

    def stop(self) -> None:
        """Ends what ``start()`` began: what comes until the next ``start()`` belongs to no step."""
        if self._started:
            self._started = False
            self.__exit__(None, None, None)

    @property
    def diagnosis(self) -> dict[str, Any] | None:
        """The diagnosis, as the JSON report has it; None until it is there."""
        companion = None if _session is None else _session.companion
        return None if companion is None else companion.diagnosis()

    def _enter(self, *, told: bool = False) -> None:
        session = _session
        if session is None and not _refused:
            session = _begin(self._wishes)
        if session is not None and session.active:
            session.enter(told=told)


class Phase:
    """What ``phase()`` gives: names a part of a training step."""

    __slots__ = ("_name", "_number")

    def __init__(self, name: str) -> None:
        self._name = name if isinstance(name, str) else str(name)
        self._number: int | None = None

    def __enter__(self) -> None:
        session = _session
        if session is not None and session.thread == get_ident():
            self._number = _PHASES.get(self._name) or session.phase_number(self._name)
            if self._number is not None:
                session.marker(BEGIN | self._number)(monotonic_ns())

    def __exit__(self, *_: object) -> None:
        session = _session
        if self._number is not None and session is not None and session.active:
            session.marker(END | self._number)(monotonic_ns())


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
) -> Diagnose:
    """Diagnoses the training loop that it is wrapped around.

    Args:
        steps: how many steps to observe; None for 15 seconds, and at least 10 steps.
        warmup: how many steps to leave out at the beginning; the sidecar's start is always left out.
        report: where to write the HTML report; None for none.
        json: where to write the JSON report.
        recording: where to keep the recording, for ``perfdoctor report``.
        profile: how many steps to profile with torch.profiler after the observed ones; None for up to 5, 0 for none.
        confirm: whether to measure what the input costs by some steps on one batch that is kept in memory. This changes
            the training by as many steps: the loader's batches, their order and its random state stay as they are.
        serialise: whether to keep the phases of 4 steps apart, where there is an accelerator or more than one rank.
    """
    if _session is not None or _refused:
        return _shared
    try:
        counts = (_count("steps", steps, 1), _count("warmup", warmup, 0) or 0)
        files = _absolute("report", report), _absolute("json", json), _absolute("recording", recording)
        wishes = Wishes(*counts, *files, _count("profile", profile, 0), confirm, serialise)
    except (TypeError, ValueError) as error:
        _refuse(f"perfdoctor does not watch: {error}")
        return _shared
    return Diagnose(wishes)


def phase(name: str) -> Phase:
    """Names a part of the step, such as ``"augment"``; shown among the phases. Nothing outside of a diagnosis."""
    return Phase(name)


_shared = Diagnose(Wishes())


def _count(name: str, value: int | None, least: int) -> int | None:
    try:
        count = None if value is None else index(value)  # numpy's numbers as well
    except TypeError:
        count = -1
    if count is not None and count < least:
        raise ValueError(f"{name}={value!r} is no number of steps; write a whole number, {least} or more.")
    return count


def _absolute(name: str, path: str | os.PathLike[str] | None) -> str | None:
    """The script may change its folder later. False is taken for None, as people write it."""
    try:
        return str(Path(path).absolute()) if path else None
    except TypeError:
        raise ValueError(f"{name}={path!r} is no path; write the name of a file, or None for none.") from None


def _refuse(why: str) -> None:
    """Nothing is watched in this process, and that is said once."""
    global _refused
    _refused = why
    warnings.warn(why, RuntimeWarning, stacklevel=3)


def _begin(wishes: Wishes) -> Session | None:
    """The process's one session; None, with the reason said once, if there can be none."""
    global _session, _refused
    with _lock:
        if _session is None and not _refused:
            _refused = _why_not()
            if _refused:
                return None
            session = None
            try:
                session = Session(wishes)
                _session = session
                session.start()
            except Exception as error:  # noqa: BLE001 - whatever is wrong with perfdoctor must not end the training
                if session is not None:
                    session.finish()
                _refused = f"perfdoctor does not watch: {type(error).__name__}: {error}"
                warnings.warn(_refused, RuntimeWarning, stacklevel=3)
            else:
                atexit.register(_at_exit)
                os.register_at_fork(after_in_child=_after_fork)
        return _session


def _why_not() -> str:
    if os.environ.get("PERFDOCTOR_DISABLE", "0") not in ("", "0"):
        return "disabled"
    if not sys.platform.startswith("linux"):
        why = f"perfdoctor watches on Linux only; this is {sys.platform}."
    elif "torch" not in sys.modules:
        why = "perfdoctor does not watch: nothing has imported torch."
    elif _forked:
        why = "perfdoctor watches the process that this one was forked from, and not this one."
    elif sys.modules["torch"].utils.data.get_worker_info() is not None:
        why = "perfdoctor does not watch loader workers: use diagnose() in the training loop."
    else:
        return ""
    warnings.warn(why, RuntimeWarning, stacklevel=4)
    return why


def _after_fork() -> None:
    """A forked child is not the one that is watched; where Yama asks, the sidecar may look at it as well."""
    global _session, _refused, _forked
    session = _session
    if session is None:
        return
    if session.active and session.companion is not None and session.companion.process is not None:
        allow_tracer(session.companion.process.pid)
    session.abandon()
    _session, _refused, _forked = None, "", True


def _at_exit() -> None:
    """Lets the sidecar end its work, and says so if it could not."""
    session = _session
    if session is None or session.pid != os.getpid() or session.companion is None:
        return
    session.finish()
    session.companion.wait(REPORT_WAIT_S)
    lost = session.companion.lost()
    if lost and sys.stderr is not None:
        print(f"perfdoctor: there is no report: {lost}.", file=sys.stderr)
    session.clear()
    allow_tracer(0)
