"""Of each line of the job's own code, how much of what it runs is overhead, and how much is what operators do.

Where steps are short, the line of one sample of machine code is seldom certain, so each line was given the mix of its
phase. The few samples of which it is certain tell lines apart: those that call small operators, and those that call
large ones; on the host of a GPU those that launch, and those that do something of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.by_function import owner_of
from perfdoctor.timeline.amounts import Amounts

_LARGEST_ODDS = 30.0  # natural logarithm: nothing but overhead, or but arithmetic
_HALVINGS = 60  # of that range, far below any share that is reported


class CodeOfLines(NamedTuple):
    """Samples of machine code that certainly belong to a line, by line: of overhead, and of torch's operators.

    Those are arithmetic on the CPU; on the host of a GPU, whatever gives the GPU work.
    """

    overhead: Mapping[str, float]
    operators: Mapping[str, float]


NO_CODE = CodeOfLines({}, {})


def overhead_of_lines(
    overhead: Mapping[str, float], operators: Mapping[str, float], seen: CodeOfLines
) -> dict[str, float]:
    """The fraction of each line's time that is overhead, of all lines together as much as before.

    A line is what its samples say, as far as there are many; else what those of its function say, and else what it was
    given (shrinkage, an empirical Bayes estimate). Then the odds of all lines are multiplied by one number, so that the
    sum stays.

    Args:
        overhead: seconds by line.
        operators: likewise.
        seen: what certainly ran at lines.
    """
    times, samples = (Amounts.summed(pair) for pair in ((overhead, operators), seen))
    found = Amounts(seen.overhead)
    overhead_of, time_of, found_of, samples_of = map(_by_owner, (overhead, times, found, samples))
    likely = {}
    for line, time in times.items():
        owner = owner_of(line)
        if time > 0:
            given = overhead_of[owner] / time_of[owner]
            of_function = _estimate(found_of[owner] - found[line], samples_of[owner] - samples[line], given)
            likely[line] = _estimate(found[line], samples[line], of_function)
    return _with_total(likely, times, Amounts(overhead).total)


def _by_owner(lines: Mapping[str, float]) -> Amounts[str]:
    return Amounts.summed({owner_of(line): amount} for line, amount in lines.items())


def _estimate(found: float, of: float, prior: float) -> float:
    return (found + thresholds.PRIOR_SAMPLES * prior) / (of + thresholds.PRIOR_SAMPLES)


def _with_total(parts: Mapping[str, float], times: Mapping[str, float], total: float) -> dict[str, float]:
    """Parts of times that come to a total, their odds all multiplied by the same number, which is found by halving."""
    low, high = -_LARGEST_ODDS, _LARGEST_ODDS
    shifted = dict(parts)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        shifted = {line: _shifted(part, middle) for line, part in parts.items()}
        if sum(part * times[line] for line, part in shifted.items()) > total:
            high = middle
        else:
            low = middle
    return shifted


def _shifted(part: float, log_factor: float) -> float:
    return part if part in (0.0, 1.0) else 1 / (1 + math.exp(-log_factor) * (1 - part) / part)
