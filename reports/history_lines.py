"""What happened to a job that is watched for days, each in one line with its date."""

from __future__ import annotations

import time

from perfdoctor.messages import Message, say
from perfdoctor.reports.text import clean, duration, percent, size
from perfdoctor.reports.wording import cause_title, worded
from perfdoctor.results.history import Appeared, Happened, Incident, Presence

_RATIO = "_ratio"  # at the end of a signal's name: what it is of what it was


def date(at: float) -> str:
    """A date in the time zone of this host, as ``2026-11-23 14:03:05``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def line(what: Incident | Presence) -> str:
    """The line: when it began, and what it is."""
    at = what.since if isinstance(what, Incident) else what.at
    return f"{date(at)}  {sentence(what)}"


def sentence(what: Incident | Presence) -> str:
    """What it is."""
    if isinstance(what, Presence):
        return clean(worded(_of_presence(what)))
    said = worded(_SAYS[what.what](what))
    if what.cause is not None and what.what is not Happened.CAUSE:
        less = what.what is Happened.FASTER
        said = worded(say("monitor.because", said=said, cause=cause_title(what.cause), less=less))
    return clean(said)


def _of_presence(what: Presence) -> Message:
    if what.what is Appeared.FOUND:
        return say("monitor.found", pid=what.pid, command=what.command)
    if what.what is Appeared.STARTED_AGAIN:
        return say("monitor.started_again", pid=what.pid)
    if what.what is Appeared.ENDED:
        return say("monitor.ended", pid=what.pid)
    if what.what is Appeared.GIVEN_UP:
        return say("monitor.given_up")
    if what.what is Appeared.UNSEEN:
        return say("monitor.unseen", reason=worded(what.text))
    return say("monitor.interrupted")


def _slower(what: Incident) -> Message:
    before, after = what.values["before_s"], what.values["after_s"]
    return say("monitor.slower", more=percent(after / before - 1), before=duration(before), after=duration(after))


def _faster(what: Incident) -> Message:
    before, after = what.values["before_s"], what.values["after_s"]
    return say("monitor.faster", less=percent(1 - after / before), before=duration(before), after=duration(after))


def _dip(what: Incident) -> Message:
    lasted = duration((what.until or what.since) - what.since)
    return say("monitor.dip", said=_slower(what), lasted=lasted)


def _recurring(what: Incident) -> Message:
    values = what.values
    return say(
        "monitor.recurring",
        count=int(values["count"]),
        longer=duration(values["longer_s"]),
        share=percent(values["share"]),
        rhythm=_rhythm(what),
    )


def _dips(what: Incident) -> Message:
    values = what.values
    return say(
        "monitor.dips",
        count=int(values["count"]),
        lasted=duration(values["lasted_s"]),
        lost=duration(values["longer_s"]),
        share=percent(values["share"]),
        rhythm=_rhythm(what),
    )


def _restarts(what: Incident) -> Message:
    values = what.values
    return say(
        "monitor.restarts",
        count=int(values["count"]),
        lost=duration(values["longer_s"]),
        share=percent(values["share"]),
        rhythm=_rhythm(what),
    )


def _rhythm(what: Incident) -> Message:
    every_s, every_steps = what.values.get("every_s"), what.values.get("every_steps")
    if every_s is None:
        return say("monitor.no_rhythm")
    if every_steps is None:
        by_the_clock = what.values.get("by_the_clock", 1.0)
        return say("monitor.by_the_clock" if by_the_clock else "monitor.every", every=duration(every_s))
    return say("monitor.every_steps", steps=round(every_steps), every=duration(every_s))


def _drift(what: Incident) -> Message:
    before, after = what.values["before_s"], what.values["after_s"]
    meanwhile = [
        say("monitor.signal", name=name.removesuffix(_RATIO), change=f"{value - 1:+.0%}")
        for name, value in what.values.items()
        if name.endswith(_RATIO)
    ]
    return say(
        "monitor.drift",
        more=percent(after / before - 1),
        before=duration(before),
        after=duration(after),
        meanwhile=tuple(meanwhile),
    )


def _memory(what: Incident) -> Message:
    values = what.values
    left_s = values.get("exhausted_in_s")
    return say(
        "monitor.memory",
        before=size(values["before_bytes"]),
        after=size(values["after_bytes"]),
        each_hour=size(3600 * values["per_s"]),
        left=None if left_s is None else duration(left_s),
    )


def _no_steps(what: Incident) -> Message:
    lasted = None if what.until is None else duration(what.until - what.since)
    ordinary_s = what.values.get("ordinary_s")
    said = say("monitor.no_steps", usual=None if ordinary_s is None else duration(ordinary_s), lasted=lasted)
    if not what.stuck:
        return said
    return say("monitor.stuck", said=said, title=say("stuck.title", kind=what.stuck), summary=what.summary)


def _cause(what: Incident) -> Message:
    before, after = percent(what.values["before"]), percent(what.values["after"])
    return say("monitor.cause", cause=cause_title(what.cause or ""), before=before, after=after)


_SAYS = {
    Happened.SLOWER: _slower,
    Happened.FASTER: _faster,
    Happened.DIP: _dip,
    Happened.RECURRING: _recurring,
    Happened.DRIFT: _drift,
    Happened.MEMORY: _memory,
    Happened.NO_STEPS: _no_steps,
    Happened.CAUSE: _cause,
    Happened.DIPS: _dips,
    Happened.RESTARTS: _restarts,
}
