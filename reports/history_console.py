"""The history of a job for a terminal: how it went, period by period, and what happened when."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfdoctor.messages import say
from perfdoctor.reports import console
from perfdoctor.reports.history_lines import date, sentence
from perfdoctor.reports.text import duration, percent, size
from perfdoctor.reports.wording import cause_title, worded
from perfdoctor.results.history import JOB_MEMORY, Beat, Happened, Incident, Line, Presence, Window

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# A history is shown in about so many periods, none of them shorter than this.
_PERIODS, _SHORTEST_S = 24, 600.0
_GOOD = (Happened.FASTER,)


def render(lines: Sequence[Line], *, width: int | None, color: bool, encoding: str | None = None) -> str:
    """The history as text, ending in a line break; the other arguments are those of ``console.render``."""
    return console.drawn(_blocks(lines), width=width, color=color, encoding=encoding)


def _blocks(lines: Sequence[Line]) -> Iterator[RenderableType]:
    beats = [line for line in lines if isinstance(line, Beat)]
    windows = [line for line in lines if isinstance(line, Window)]
    seen: list[Beat | Window] = [*beats, *windows]
    if seen:
        since, until = min(one.began for one in seen), max(one.ended for one in seen)
        cost = sum(window.cost_s for window in windows)
        yield worded(
            say(
                "monitor.watched",
                since=date(since),
                until=date(until),
                beats=duration(sum(beat.lasted_s for beat in beats)),
                windows=len(windows),
                cost=say("monitor.window_cost", cost=duration(cost), cores=percent(cost / max(until - since, 1.0))),
            )
        )
        yield from console.heading(worded(say("monitor.heading_periods")))
        yield _periods(beats, windows, since, until)
    yield from console.heading(worded(say("monitor.heading_history")))
    happened = list(_happened(lines))
    if not happened:
        yield console.indented(worded(say("monitor.nothing_happened")), 2)
    for what in happened:
        tone = "" if isinstance(what, Presence) else "green" if what.what in _GOOD else "yellow"
        at = what.since if isinstance(what, Incident) else what.at
        yield console.indented(f"{date(at)}  {sentence(what)}", 2, tone)
        if isinstance(what, Incident) and what.recordings:
            files = " ".join(map(shlex.quote, what.recordings))
            command = "compare" if len(what.recordings) == 2 else "report"
            yield console.indented(f"perfdoctor {command} {files}", 23, console.FAINT)


def _happened(lines: Iterable[Line]) -> list[Incident | Presence]:
    """In order of time, each incident as it was last known."""
    incidents: dict[int, Incident] = {line.number: line for line in lines if isinstance(line, Incident)}
    presences = [line for line in lines if isinstance(line, Presence)]
    found: list[Incident | Presence] = [*incidents.values(), *presences]
    return sorted(found, key=lambda what: what.since if isinstance(what, Incident) else what.at)


def _periods(beats: Sequence[Beat], windows: Sequence[Window], since: float, until: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    headings = (
        say("monitor.column_from"), say("monitor.column_steps"), say("monitor.column_step"),
        say("monitor.column_long"), say("monitor.column_memory"), say("monitor.column_cause"),
    )  # fmt: skip
    for heading in headings:
        table.add_column(worded(heading), overflow="fold", header_style=console.FAINT)
    length_s = max(_SHORTEST_S, (until - since) / _PERIODS)
    first = int(since // length_s)
    for number in range(first, int(until // length_s) + 1):
        of_beats = [beat for beat in beats if beat.began // length_s == number]
        of_windows = [window for window in windows if window.began // length_s == number]
        if of_beats or of_windows:
            cells = _row(of_beats, of_windows)
            table.add_row(date(max(since, number * length_s)), *map(Text, cells))
    return table


def _row(beats: Sequence[Beat], windows: Sequence[Window]) -> tuple[str, ...]:
    unseen = worded(say("monitor.not_seen"))
    paces = [beat.step_s for beat in beats if beat.step_s]
    lasted_s = sum(beat.lasted_s for beat in beats)
    longer_s = sum(step.longer_s for beat in beats for step in beat.long)
    memory = [beat.readings[JOB_MEMORY] for beat in beats if JOB_MEMORY in beat.readings]
    return (
        f"{sum(beat.steps for beat in beats):,}" if paces else unseen,
        duration(statistics.median(paces)) if paces else unseen,
        percent(longer_s / lasted_s) if paces and lasted_s else unseen,
        size(statistics.median(memory)) if memory else unseen,
        _mostly(windows) or unseen,
    )


def _mostly(windows: Sequence[Window]) -> str:
    """What most windows saw: a cause with its share, or in what the job was stuck; "" where they saw nothing."""
    seen = Counter((window.cause, window.stuck) for window in windows if window.cause is not None or window.stuck)
    if not seen:
        return ""
    (cause, stuck), _ = seen.most_common(1)[0]
    if cause is None:
        return worded(say("stuck.title", kind=stuck))
    share = statistics.fmean(window.shares.get(cause, 0.0) for window in windows if window.shares or window.cause)
    return f"{percent(share)} {cause_title(cause)}"
