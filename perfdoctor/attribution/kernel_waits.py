"""Waits of a GPU's host that samples of user mode show too few of, since they are mostly in the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfdoctor.knowledge import thresholds

# Of a phase's samples, those of the clock where a host waits in it for long enough to matter.
_CLOCK_OF_WAITS = thresholds.CLOCK_IN_WAITS * thresholds.HOST_WAITS


def waits_in_kernel(
    by_phase: Mapping[str, Counter[str]], running: Mapping[str, float], in_kernel: float
) -> dict[str, float]:
    """How many times as often the host of a GPU asks for the time in each phase as samples of user mode show.

    Where it yields its core between looks at the device, or the kernel's shared page has no clock for it, a wait is
    mostly in the kernel. Then samples are missing of phases in which it waits.

    Args:
        by_phase: samples by the phase of their times.
        running: the running time by phase, in fractions.
        in_kernel: of the running time, the part in the kernel that nothing else explains.

    Returns:
        Factors of 1 and more, for phases in which it waits.
    """
    sampled = sum(counts.total() for counts in by_phase.values())
    unsampled = sampled * in_kernel / (1 - in_kernel) if in_kernel < 1 else 0.0
    missing = {
        phase: max(0.0, running.get(phase, 0.0) * (sampled + unsampled) - counts.total())
        for phase, counts in by_phase.items()
        if counts["clock"] >= max(thresholds.CERTAIN_CODE_SAMPLES, _CLOCK_OF_WAITS * counts.total())
    }
    total = sum(missing.values())
    known = min(1.0, unsampled / total) if total else 0.0
    return {phase: 1 + known * count / by_phase[phase]["clock"] for phase, count in missing.items()}


def as_often(by_phase: Mapping[str, Counter[str]], factors: Mapping[str, float]) -> dict[str, Counter[str]]:
    """The samples, with those of the clock as often as phases' factors say."""
    found = {phase: Counter(counts) for phase, counts in by_phase.items()}
    for phase, factor in factors.items():
        found[phase]["clock"] *= factor  # type: ignore[assignment]
    return found
