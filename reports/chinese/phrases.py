"""Numbers, counts and phrases as several findings write them; no messages."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.chinese.labels import unit


def fix(title: str, why: str, change: str = "") -> Fix:
    """A fix; without a change of its own it gets the English one's, which is code."""
    return Fix(title, why, change)


def percent(share: float) -> str:
    """A fraction for people: ``37%``."""
    return f"{100 * share:.0f}%" if share >= 0.01 or share == 0 else "不到 1%"


def amount(measured: Evidence) -> str:
    """A measured number with its unit, ``439 MB/s``."""
    value, called = measured.value, unit(unit=measured.unit)
    if isinstance(value, (int, float)):
        value = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value}{'' if not called else called if called.startswith('/') else ' ' + called}"


def then(sentence: str | None) -> str:
    """A sentence that follows another one; nothing where there is none."""
    return sentence or ""
