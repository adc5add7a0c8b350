"""Shows a recording on the terminal until the user has seen enough, or something else ends it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.live.analyst import Analyst
from perfdoctor.recording.follow import Follower
from perfdoctor.reports.live import Drawing
from perfdoctor.reports.live_keys import Selection, moved_on, press
from perfdoctor.reports.terminal import Closed, Terminal
from perfdoctor.results.view import View

if TYPE_CHECKING:
    from perfdoctor.analysis.live_view import Examined

# The terminal's size is looked at so often, and whether somebody is still there to see it.
_POLL_S = 0.25
# Keys that are held down are answered so often at most.
_DRAW_S = 0.1
# Where a recording is played, another instant is asked for in steps of this.
_PLAYED_S = 0.5


def show(path: Path, *, beside_recorder: bool = False, wanted: Callable[[], bool] = lambda: True) -> None:
    """Shows a recording until the user quits, a signal comes or the terminal is closed.

    Args:
        path: the recording.
        beside_recorder: it is just being begun, and whoever records says when it has ended.
        wanted: whether it is to go on, asked some times a second.

    Raises:
        PerfDoctorError: the recording cannot be read, or there is no terminal.
    """
    with (
        Analyst(path, _view, beside_recorder=beside_recorder) as analyst,
        _asked_to_end(analyst) as asked_to_end,
        suppress(Closed),
        Terminal() as terminal,
    ):
        _show(terminal, analyst, lambda: wanted() and not asked_to_end())


def _view(follower: Follower, at_ns: int, examined: Examined, *, live: bool) -> View:
    from perfdoctor.analysis.live_view import view_at  # loads numpy

    return view_at(follower, at_ns, examined, live=live)


def _show(terminal: Terminal, analyst: Analyst[View], wanted: Callable[[], bool]) -> None:
    drawing, choice = Drawing(), Selection()
    looked_s = drawn_s = time.monotonic()
    view: View | None = None
    drawn: object = None
    while wanted() and not choice.quit:
        for key in terminal.keys(_POLL_S, analyst.wakes):
            choice = press(choice, key, view)
        view, size, now_s = analyst.newest(), terminal.size, time.monotonic()
        choice, looked_s = moved_on(choice, view, now_s - looked_s), now_s
        analyst.go_to(None if choice.at_s is None else choice.at_s // _PLAYED_S * _PLAYED_S)
        if (shown := (size, choice, id(view))) != drawn:
            time.sleep(max(0.0, drawn_s + _DRAW_S - now_s))
            terminal.draw(drawing.lines(view, choice, *size))
            drawn, drawn_s = shown, time.monotonic()
            choice = replace(choice, scroll=min(choice.scroll, drawing.most_scroll))


@contextmanager
def _asked_to_end(analyst: Analyst[View]) -> Iterator[Callable[[], bool]]:
    """Whether a signal has come that ends programs; the terminal is set right before."""
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)
        analyst.wake()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
