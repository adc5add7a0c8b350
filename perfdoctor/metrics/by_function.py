"""Where in the job's own code a cause lies: summed by function, and what of other packages runs below its lines."""

from __future__ import annotations

import re
from collections.abc import Mapping

from perfdoctor.timeline.amounts import Amounts

_SHOWN = 5  # functions: as many as a report has lines for
_MODULE = "<module>"
# Comprehensions and lambdas are part of the function that they are written in.
_INNER = re.compile(r"\.<locals>\.<(?:listcomp|dictcomp|setcomp|genexpr|lambda)>")


def by_function(lines: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Source lines summed by function, so that a costly one cannot hide by being long.

    Args:
        lines: ``"file.py:12 function"`` to its amount.

    Returns:
        The hottest line of each function and the fraction that the whole function has, largest first. Lines of a
        script's top level stand for themselves: they do different things.
    """
    totals: Amounts[str] = Amounts()
    hottest: dict[str, str] = {}
    for line, amount in lines.items():
        owner = owner_of(line)
        totals[owner] += amount
        if owner not in hottest or amount > lines[hottest[owner]]:
            hottest[owner] = line
    return tuple((_INNER.sub("", hottest[owner]), part) for owner, part in list(totals.fractions().items())[:_SHOWN])


def owner_of(line: str) -> str:
    """The function that a line is in, with its file."""
    place, _, function = line.partition(" ")
    return line if function in ("", _MODULE) else f"{place.rpartition(':')[0]} {_INNER.sub('', function)}"


def by_owner(under: Mapping[str, Mapping[str, float]]) -> dict[str, Amounts[str]]:
    """What was innermost below lines (``Stacks.below_lines``), by function."""
    found: dict[str, Amounts[str]] = {}
    for line, packages in under.items():
        found[owner_of(line)] = Amounts.summed([found.get(owner_of(line), {}), packages])
    return found


def below(lines: Mapping[str, float], under: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Package to fraction, over all lines of a cause; "" for the job's own code, C functions that it calls included."""
    parts = []
    for line, amount in lines.items():
        fractions = Amounts(under.get(line, {})).fractions()
        parts.append({package: part * amount for package, part in fractions.items()})
    return Amounts.summed(parts).fractions()


def named_calls(lines: Mapping[str, float], under: Mapping[str, Mapping[str, float]]) -> tuple[tuple[str, float], ...]:
    """Calls of libraries (``Stacks.calls_below_lines``) and their part of all lines of a cause, largest first."""
    found = below(lines, under)
    return tuple(sorted(((call, part) for call, part in found.items() if call), key=lambda one: -one[1]))


def without_torch(lines: Mapping[str, float], under: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The amounts of lines without the part that torch ran below them."""
    parts = {line: Amounts(under.get(line, {})).fractions().get("torch", 0.0) for line in lines}
    return {line: amount * (1 - parts[line]) for line, amount in lines.items() if parts[line] < 1}
