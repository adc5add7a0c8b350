"""What rules share: thresholds, reading facts, and putting a finding together."""

import re
from collections.abc import Iterable
from dataclasses import replace

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Evidence, Finding, Fix
from perfdoctor.facts import Facts, Trainer

# From which share of wall time a cause is reported: the level at which the TensorBoard plugin and XProf speak
# of input, and from which Ascend's advisor calls a problem high.
REPORTED = 0.05
# gpuprof's warning and critical levels for stalls; XProf and TraceML call 20 % high, between the two.
MEDIUM = 0.15
HIGH = 0.30

# Below this a cause is never a verdict (``perfdoctor.verdict.MIN_SHARE``): one piece of advice is enough for it.
_MINOR = 0.10
# A share this close to 1 would predict a speed-up beyond what the measurement can carry.
_SMALLEST_REST = 0.01
_MOST = 0.5


def severity(cause: str, share: float) -> str:
    """``high``, ``medium`` or ``low`` by share of wall time; ``none`` for a healthy cause."""
    if CAUSES[cause].healthy:
        return "none"
    if share >= HIGH:
        return "high"
    return "medium" if share >= MEDIUM else "low"


def finding(
    facts: Facts, cause: str, summary: str, numbers: str, fixes: Iterable[Fix], refuted_by: str
) -> Finding:
    """A finding whose share is what the breakdown gave to its cause.

    Args:
        facts: what was measured.
        cause: its id.
        summary: one sentence.
        numbers: names of the numbers to show as evidence where they were measured, separated by spaces.
        fixes: the one to do first first; those with a predicted pace change places by it.
        refuted_by: the test that would prove the finding wrong.
    """
    share = facts.share(cause)
    shown = [
        Evidence(f"wall time spent on {CAUSES[cause].title}", round(share, 4), "of the time", "breakdown")
    ]
    shown += [facts.numbers[name] for name in numbers.split() if name in facts.numbers]
    ranks = facts.culprits.get(cause, ()) if len(facts.trainers) > 1 else ()
    if len(set(ranks)) < len(facts.trainers):
        shown += [facts.numbers[f"longer.{rank}"] for rank in ranks if f"longer.{rank}" in facts.numbers]
    shown += [
        Evidence("where most of it is", text, "", "stacks") for text in _listed(facts.lines.get(cause, ()))
    ]
    shown += [
        Evidence("on what most of it is", text, "", "threads") for text in _listed(facts.paths.get(cause, ()))
    ]
    shown += [
        Evidence("operator that most of it is for", text, "", "trace")
        for text in _listed(facts.operators.get(cause, ()))
    ]
    shown += [
        Evidence("kernel that takes most of it", text, "", "trace")
        for text in _listed(facts.kernels.get(cause, ()))
    ]
    ordered = _by_pace(tuple(fixes))[: 1 if share < _MINOR else None]
    most = 1.0 if CAUSES[cause].healthy else freed(share)
    speedup = min(most, max((fix.predicted_speedup for fix in ordered if fix.predicted_speedup), default=most))
    return Finding(cause, share, severity(cause, share), speedup, summary, tuple(shown), ordered, refuted_by, ranks)


def freed(share: float, left: float = 0.0) -> float:
    """New pace over old pace where a share of the wall time is freed.

    Args:
        share: fraction of the wall time that the fix is about.
        left: fraction of the present wall time that the job takes at least even so, the next bottleneck.
    """
    return 1 / max(1 - share, min(left, 1.0), _SMALLEST_REST)


def _by_pace(fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The fixes with those of a predicted pace in its order; the others keep their places."""
    ranked = iter(sorted((fix for fix in fixes if fix.predicted_speedup), key=_pace, reverse=True))
    return tuple(next(ranked) if fix.predicted_speedup else fix for fix in fixes)


def _pace(fix: Fix) -> float:
    return round(fix.predicted_speedup or 1.0, 1)  # what differs by less is as good: the first stays first


def bounded(found: Finding, pace: float) -> Finding:
    """The finding with its gain limited by the next bottleneck.

    Args:
        found: the finding.
        pace: what the fix leaves of the wall time at least, as a fraction.
    """
    return replace(
        found, predicted_speedup=max(1.0, min(found.predicted_speedup, 1 / max(pace, _SMALLEST_REST)))
    )


def percent(share: float) -> str:
    """A fraction for people: ``37 %``."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "less than 1 %"


def counted(number: float, thing: str, things: str = "") -> str:
    """A number of things: ``1 core``, ``1.5 cores``."""
    return f"{number:g} {thing if number == 1 else things or thing + 's'}"


def takes(facts: Facts, cause: str, what: str) -> str:
    """The summary sentence: what takes how much of the time, where, and in which ranks."""
    text = f"{what} takes {percent(facts.share(cause))} of the time"
    line, path = hot_line(facts, cause), hot_path(facts, cause)
    if line:
        most = facts.lines[cause][0][1] >= _MOST
        text += f", {'most of it' if most else 'above all'} at {line}"
    elif path:
        text += f", most of it on {path}"
    return f"{text}{in_ranks(facts, cause)}."


def in_ranks(facts: Facts, cause: str) -> str:
    """Which ranks a cause lies in and that the others wait; empty where it lies in all."""
    ranks = facts.culprits.get(cause, ())
    if len(facts.trainers) < 2 or not ranks or len(set(ranks)) >= len(facts.trainers):
        return ""
    names = ", ".join(str(rank) for rank in ranks)
    if len(ranks) > 1:
        return f"; it lies in ranks {names}, and the other ranks wait for them"
    return f"; it lies in rank {names}, and the other ranks wait for it"


def culprits(facts: Facts, cause: str) -> list[Trainer]:
    """The trainers in which a cause lies; all of them where that is not known."""
    ranks = facts.culprits.get(cause, ())
    return [trainer for trainer in facts.trainers if trainer.rank in ranks] or list(facts.trainers)


def hot_line(facts: Facts, cause: str) -> str | None:
    """The job's own source line that is on the stack most often, as ``file.py:12 function``."""
    lines = facts.lines.get(cause, ())
    return lines[0][0] if lines else None


def hot_path(facts: Facts, cause: str) -> str | None:
    """The file that was read, written or waited on most; pipes, sockets and the like do not count."""
    for target, _ in facts.paths.get(cause, ()):
        kind, _, path = target.partition(":")
        if kind == "file":
            return path
        if target.startswith("/"):
            return target
    return None


def at(facts: Facts, cause: str, otherwise: str) -> str:
    """The hot line for use in a fix's title, or other words where it is not known."""
    return hot_line(facts, cause) or otherwise


def twice_the_batch(facts: Facts) -> str:
    """The change that doubles the batch, in a loader if the job has one."""
    return "2 * batch_size" if facts.settings.get("loader") == "no" else "DataLoader(..., batch_size=2 * batch_size)"


def setting(facts: Facts, name: str) -> float | None:
    """A setting as a number; None if unknown or not a number."""
    try:
        value = float(facts.settings[name])
    except (KeyError, ValueError):
        return None
    return value if value == value else None


def variable(facts: Facts, name: str) -> str | None:
    """An environment variable of the job; None if unset or unknown."""
    value = facts.settings.get(f"env.{name}")
    return None if value is None else str(value)


def switched_on(facts: Facts, name: str) -> bool:
    """Whether an environment variable is set to something that means yes."""
    return (variable(facts, name) or "").strip().lower() not in ("", "0", "false", "no", "off")


def unset(facts: Facts, name: str, why: str) -> list[Fix]:
    """The fix that takes a harmful environment variable away, if it is switched on."""
    if not switched_on(facts, name):
        return []
    return [Fix(f"Unset {name}", f"It is set to {variable(facts, name)} in this job. {why}", f"unset {name}")]


def uses_gpu(facts: Facts) -> bool:
    """Whether the job is known to use a GPU."""
    return (facts.number("gpus") or setting(facts, "gpus") or 0) > 0


def amount(facts: Facts, name: str) -> str | None:
    """A measured number with its unit, ``439 MB/s``; None where it was not measured."""
    value = facts.number(name)
    if value is None:
        return None
    unit = facts.numbers[name].unit
    return f"{_digits(value)}{'' if not unit else unit if unit.startswith('/') else ' ' + unit}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _listed(items: Iterable[tuple[str, float]], most: int = 3) -> list[str]:
    """The first few of ``(what, fraction)`` as text."""
    return [f"{re.sub('^file:', '', what)} ({percent(part)})" for what, part in list(items)[:most]]
