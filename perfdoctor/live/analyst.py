"""Reads a recording that grows and makes views or figures of it, in a thread: who asks is answered at once."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from perfdoctor.live.budget import Throttle
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.follow import Follower
from perfdoctor.recording.reader import Recording

if TYPE_CHECKING:
    from perfdoctor.analysis.live_view import Examined

M_co = TypeVar("M_co", covariant=True)

# A diagnosis is made anew where it would be about so much more.
_WORTH_NS = 5 * NS_PER_S
# Recorders commit every 0.5 s: nobody writes a recording of which nothing has come for so long.
_ABANDONED_NS = 30 * NS_PER_S
# The file of a recorder that has just been started is empty, or not there yet, for so long at most.
_PATIENCE_S = 20.0
_POLL_S = 0.1


class Maker(Protocol[M_co]):
    """Makes something of a recording at an instant, as ``perfdoctor.analysis.live_view.view_at`` makes a view."""

    def __call__(self, follower: Follower, at_ns: int, examined: Examined, *, live: bool) -> M_co:
        """Makes it."""


class Analyst(threading.Thread, Generic[M_co]):
    """Follows a recording. Nobody waits for it at the end: a diagnosis that it is at would be seen by nobody.

    Args:
        path: the recording.
        make: makes views of it, or figures.
        beside_recorder: its recorder has just been started, and ends this one when it has come to its end.

    Attributes:
        wakes: there is something to read from this file when another one was made.
    """

    def __init__(self, path: Path, make: Maker[M_co], *, beside_recorder: bool) -> None:
        super().__init__(name="analyst", daemon=True)
        self._path, self._make, self._beside_recorder = path, make, beside_recorder
        self._asked = threading.Condition()
        self._at_s: float | None = None
        self._ended = False
        self._cost_s = 0.0
        self._whole: Examined | None = None
        self._newest: M_co | None = None
        self.wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._failure: Exception | None = None

    def __enter__(self) -> Analyst[M_co]:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._asked:
            self._ended = True
            self._asked.notify()

    def go_to(self, at_s: float | None) -> None:
        """Asks for another instant, in seconds since the recording began; None for its end."""
        with self._asked:
            if at_s != self._at_s:
                self._at_s = at_s
                self._asked.notify()

    def wake(self) -> None:
        """Makes whoever waits for another one look up; may be called by a signal handler."""
        os.eventfd_write(self.wakes, 1)

    def newest(self) -> M_co | None:
        """What was made last; None before the first.

        Raises:
            PerfDoctorError: there will be no more: the recording is damaged, or gone.
        """
        if self._failure is not None:
            raise self._failure
        with suppress(BlockingIOError):
            os.eventfd_read(self.wakes)
        return self._newest

    def run(self) -> None:
        """Goes on until it is to end; what goes wrong is raised where they are asked for."""
        try:
            if (follower := self._open()) is not None:
                self._follow(follower)
                follower.close()
        except Exception as failure:  # noqa: BLE001
            self._failure = failure
            self.wake()

    def _open(self) -> Follower | None:
        """Opens the recording; None if the user has quit before it began."""
        patient_until = time.monotonic() + _PATIENCE_S
        while self._beside_recorder and not self._has_begun() and time.monotonic() < patient_until:
            time.sleep(_POLL_S)
            if self._ended:
                return None
        return Follower(self._path)

    def _has_begun(self) -> bool:
        return self._path.exists() and self._path.stat().st_size > 0

    def _follow(self, follower: Follower) -> None:
        from perfdoctor.analysis.live_view import Examined

        throttle, examined, shown = Throttle(), Examined(), (0, False)
        while not self._ended:
            follower.read_on()
            live = self._beside_recorder or (not follower.stopped and now_ns() - follower.grown_ns < _ABANDONED_NS)
            asked_s = self._at_s
            at_s = None if live else asked_s
            at_ns = follower.newest_ns if at_s is None else follower.start_ns + int(at_s * NS_PER_S)
            if live or shown != (at_ns, live):
                shown = at_ns, live
                self._publish(self._make(follower, at_ns, examined, live=live))
            newer = self._examine(follower, at_ns, examined, throttle, live=live)
            if newer is not examined:
                examined = newer
                self._publish(self._make(follower, at_ns, examined, live=live))
            self._wait(asked_s, throttle.until_next_view())

    def _examine(
        self, follower: Follower, at_ns: int, examined: Examined, throttle: Throttle, *, live: bool
    ) -> Examined:
        """A newer diagnosis where there is more to say and the budget allows it, or the one that there is."""
        from perfdoctor.analysis.live_view import examine_span, examine_whole, span_to_examine

        if not live and at_ns == follower.newest_ns:
            if self._whole is None or self._whole.span[1] < at_ns:
                with Recording.open(self._path) as recording:
                    self._whole = examine_whole(recording)
            return self._whole
        span = span_to_examine(follower, at_ns)
        if span is None:
            return self._whole or examined
        worth_ns = _WORTH_NS if live else NS_PER_S
        if abs(span[1] - examined.span[1]) < worth_ns or not throttle.allows(self._cost_s):
            return examined
        began_s = time.thread_time()
        newer = examine_span(follower, span)
        self._cost_s = time.thread_time() - began_s
        throttle.diagnosed(self._cost_s)
        return newer

    def _wait(self, asked_s: float | None, seconds: float) -> None:
        """Waits until it is time for another view, or another instant is asked for, or it is to end."""
        with self._asked:
            self._asked.wait_for(lambda: self._ended or self._at_s != asked_s, seconds)

    def _publish(self, made: M_co) -> None:  # type: ignore[misc]  # nobody but this thread hands anything in
        self._newest = made
        self.wake()
