"""The words and numbers of all reports: what is safe to print, and how a number with a unit is written."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from perfdoctor.causes import CAUSES
from perfdoctor.messages import Message, Text
from perfdoctor.reports.wording import cause_title, label, worded

# Control characters (terminal escapes begin with one), marks that reorder text, and what UTF-8 cannot carry.
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]"
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"

# How a sentence begins, and no line of Python or of a shell: a capitalised word, and another word after a blank.
_SENTENCE = re.compile(r"[A-Z][a-z]+:? [\w-]")
_FULL_STOP = "\u3002"  # how one ends in Chinese

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "second": 1.0, "seconds": 1.0}
_BYTES = {"bytes": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_FRACTIONS = {"fraction", "share"}
_PERCENTS = {"%", "percent"}

_ACRONYMS = {"cpu", "gpu", "pid", "cuda", "ram"}

# Endings of key names in a diagnosis' free tables, and the unit that each stands for.
_KEY_UNITS = {
    "_bytes_per_second": "bytes/s",
    "_bytes": "bytes",
    "_seconds": "s",
    "_s": "s",
    "_ms": "ms",
    "_us": "us",
    "_ns": "ns",
    "_fraction": "fraction",
    "_share": "fraction",
    "_percent": "%",
}


def clean(text: Text) -> str:
    """One line of printable text: blanks run together, what steers a terminal or breaks UTF-8 replaced."""
    return _UNPRINTABLE.sub(_REPLACEMENT, " ".join((worded(text) if isinstance(text, Message) else text).split()))


def clean_lines(text: str) -> str:
    """The same for code: line breaks and indentation stay."""
    lines = text.replace("\r\n", "\n").expandtabs(4).strip("\n").split("\n")
    return "\n".join(_UNPRINTABLE.sub(_REPLACEMENT, line).rstrip() for line in lines)


def without_surrogates(text: str) -> str:
    """Text that UTF-8 can carry: lone surrogates, which come from file names that are not UTF-8, are U+FFFD."""
    return _LONE_SURROGATE.sub(_REPLACEMENT, text)


def brief(text: Text, most: int = 120) -> str:
    """A name of the job's as a label: one line of printable text, the middle of a very long one left out."""
    said = clean(text)
    return said if len(said) <= most else f"{said[: most // 2 - 1]}…{said[-(most // 2) :]}"


def shown_cause(cause: str) -> str:
    """What a cause is; its id where another version of perfdoctor knows it."""
    return cause_title(cause) if cause in CAUSES else brief(cause)


def is_prose(change: str) -> bool:
    """Whether a change is a sentence, which may be wrapped, and no code."""
    return "\n" not in change and (_SENTENCE.match(change) is not None or change.endswith(_FULL_STOP))


def percent(fraction: float) -> str:
    """``0.62`` as ``62%``; what is neither nothing nor all is never rounded to it."""
    if not math.isfinite(fraction):
        return label("unknown")
    if 0 < fraction < 0.005:
        return "<1%"
    if 0.995 <= fraction < 1:
        return ">99%"
    return f"{100 * fraction:.0f}%"


def times(factor: float) -> str:
    """How many times as fast: ``1.8``."""
    if not math.isfinite(factor):
        return label("unknown")
    return f"{factor:.2f}" if factor < 1.1 else f"{factor:.1f}" if factor < 10 else f"{factor:.0f}"


def speedup(factor: float) -> str:
    """``1.8`` as ``1.8x``."""
    return f"{times(factor)}x" if math.isfinite(factor) else label("unknown")


def factor(value: float | None) -> str:
    """A measured speed-up with two digits behind the point: differences of some percent are what is measured."""
    return label("unknown") if value is None else f"{value:.2f}x" if value < 10 else speedup(value)


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best, from ``12 µs`` to ``3 h 20 min``."""
    size = abs(seconds)
    if size >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    if size >= 120:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if size >= scale:
            return f"{number(seconds / scale)} {unit}"
    return f"{number(seconds * 1e9)} ns" if seconds else "0 s"


def size(count: float) -> str:
    """Bytes with a decimal prefix, as disks, links and ``torch.cuda`` count, e.g. ``1.5 GB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return counted(number(count), unit)
        count /= 1000
    return f"{number(count)} TB"


def number(value: float) -> str:
    """Three significant digits, thousands apart; whole numbers in full."""
    if not math.isfinite(value):
        return label("unknown")
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.2e}"


def quantity(value: float | Text | None, unit: str) -> str:
    """A measured value with its unit, as a person would write it. None is ``unknown``, never a zero."""
    if isinstance(value, (str, Message)):
        return clean(counted(worded(value), unit))
    if value is None or not math.isfinite(value):
        return label("unknown")
    kind, slash, per = unit.strip().partition("/")
    kind = kind.lower()
    if kind.startswith("of "):  # a fraction of something: of the time, of the memory
        return clean(counted(percent(value), unit))
    if kind in _FRACTIONS:
        written = percent(value)
    elif kind in _PERCENTS:
        written = percent(value / 100)
    elif kind in _SECONDS:
        written = duration(value * _SECONDS[kind])
    elif kind in _BYTES:
        written = size(value * _BYTES[kind])
    else:
        return clean(f"{number(value)}{unit}" if unit.startswith("/") else counted(number(value), unit))
    return clean(written + slash + per)


def counted(amount: str, unit: str) -> str:
    """A written number or text with its unit."""
    return f"{amount} {label('unit', unit=unit, one=amount == '1')}"


def fact(name: str, value: Any) -> tuple[str, str]:
    """A key of a free table (job, steps, overhead) and its value, as label and text.

    Args:
        name: e.g. ``median_s`` or ``memory_bytes``; the ending is the unit.
        value: a number, a text, None, or a list or mapping of such.
    """
    if name == "cpu_cores" and isinstance(value, (int, float)):
        return "CPU", label("of_one_core", share=percent(value))
    for ending, unit in _KEY_UNITS.items():
        if name.endswith(ending) and isinstance(value, (int, float)) and not isinstance(value, bool):
            return _label(name.removesuffix(ending)), quantity(value, unit)
    return _label(name), _plain(value)


def sentence(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def lower_first(text: str) -> str:
    """A title as part of a sentence; abbreviations keep their capitals."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _label(name: str) -> str:
    words = clean(name.replace("_", " ")).split(" ")
    return worded(sentence(" ".join(word.upper() if word in _ACRONYMS else word for word in words)))


def _plain(value: Any) -> str:
    if value is None:
        return label("unknown")
    if isinstance(value, bool):
        return label("yes" if value else "no")
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        items = tuple(f"{clean(str(key))} {_plain(item)}" for key, item in value.items())
        return label("sequence", items=items) if items else label("none")
    if isinstance(value, Iterable):
        items = tuple(_plain(item) for item in value)
        return label("sequence", items=items) if items else label("none")
    return clean(str(value))
