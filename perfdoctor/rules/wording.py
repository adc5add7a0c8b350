"""Words of findings: numbers for people, the sentence that sums a cause up, and fixes that several rules give."""

from perfdoctor.diagnosis import Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.lookups import hot_line, hot_path, switched_on, variable

# One function that has at least this part of a cause's time has most of it.
_MOST = 0.5


def percent(share: float) -> str:
    """A fraction for people: ``37 %``."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "less than 1 %"


def counted(number: float, thing: str, things: str = "") -> str:
    """A number of things: ``1 core``, ``1.5 cores``."""
    return f"{number:g} {thing if number == 1 else things or thing + 's'}"


def amount(case: Case, name: str) -> str | None:
    """A measured number with its unit, ``439 MB/s``; None where it was not measured."""
    value = case.number(name)
    if value is None:
        return None
    unit = case.numbers[name].unit
    return f"{_digits(value)}{'' if not unit else unit if unit.startswith('/') else ' ' + unit}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def takes(case: Case, cause: str, what: str) -> str:
    """The summary sentence: what takes how much of the time, where, and in which ranks."""
    text = f"{what} takes {percent(case.share(cause))} of the time"
    line, path = hot_line(case, cause), hot_path(case, cause)
    if line:
        most = case.lines[cause][0][1] >= _MOST
        text += f", {'most of it' if most else 'above all'} at {line}"
    elif path:
        text += f", most of it on {path}"
    return f"{text}{in_ranks(case, cause)}."


def in_ranks(case: Case, cause: str) -> str:
    """Which ranks a cause lies in and that the others wait; empty where it lies in all."""
    ranks = case.culprits.get(cause, ())
    if len(case.trainers) < 2 or not ranks or len(set(ranks)) >= len(case.trainers):
        return ""
    names = ", ".join(str(rank) for rank in ranks)
    if len(ranks) > 1:
        return f"; it lies in ranks {names}, and the other ranks wait for them"
    return f"; it lies in rank {names}, and the other ranks wait for it"


def at(case: Case, cause: str, otherwise: str) -> str:
    """The hot line for use in a fix's title, or other words where it is not known."""
    return hot_line(case, cause) or otherwise


def twice_the_batch(case: Case) -> str:
    """The change that doubles the batch, in a loader if the job has one."""
    return "2 * batch_size" if case.settings.get("loader") == "no" else "DataLoader(..., batch_size=2 * batch_size)"


def unset(case: Case, name: str, why: str) -> list[Fix]:
    """The fix that takes a harmful environment variable away, if it is switched on."""
    if not switched_on(case, name):
        return []
    return [Fix(f"Unset {name}", f"It is set to {variable(case, name)} in this job. {why}", f"unset {name}")]
