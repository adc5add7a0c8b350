"""What the host of a GPU runs: it waits for the device, gives it work, or does something of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.symbols import DRIVERS

# Kinds of code that are there besides those of ``perfdoctor.knowledge.symbols``.
WAITS, DRIVES, LAUNCHES = "device wait", "driver's own", "launch"
# Waits for room in the launch queue, in the kernel.
QUEUED = "launch queue"
# Of a phase's samples, those of the clock where a host waits in it for long enough to matter.
_CLOCK_OF_WAITS = thresholds.CLOCK_IN_WAITS * thresholds.HOST_WAITS


def with_device(counts: Mapping[str, float], *, asks_time: bool = True) -> Counter[str]:
    """Splits what the host of a GPU runs into waiting for the device, launching work on it, and its own.

    A wait for results spins: it runs in the driver, and asks for the time; any wait may yield its core. Launching runs
    in the driver too, but not without torch's dispatcher, and it takes some interpreter. What the driver runs beyond
    that without asking for the time is a wait for room in the launch queue, or launching that goes past the
    dispatcher, as compiled code does.

    Args:
        counts: samples by kind of code.
        asks_time: the driver's waits for results do; they were seen to, at least once in some phase, or others yield.
    """
    split = Counter(counts)
    driver = sum(split.pop(kind, 0) for kind in DRIVERS)
    clock, dispatch, yields = (split.pop(kind, 0) for kind in ("clock", "dispatch", "yield"))
    launching = min(driver, thresholds.DRIVER_PER_DISPATCH * dispatch)
    called = dispatch + launching
    calling = min(split["interpreter"], thresholds.INTERPRETER_PER_LAUNCH * called)
    beyond = clock + yields + driver - launching
    waits = min(beyond, clock / thresholds.CLOCK_IN_WAITS) if asks_time else beyond
    split[WAITS], split[DRIVES] = waits, beyond - waits + split.pop(QUEUED, 0)  # type: ignore[assignment]
    split[LAUNCHES] = called + calling  # type: ignore[assignment]
    split["interpreter"] -= calling  # type: ignore[assignment]
    return split


def launching_in(counts: Mapping[str, float]) -> float:
    """Of what dispatches operators in front of the model's call, the part that launches: it needs the driver."""
    called = thresholds.DRIVER_PER_DISPATCH * counts.get("dispatch", 0)
    return min(1.0, sum(counts.get(kind, 0) for kind in DRIVERS) / called) if called else 0.0


def waits_in_kernel(
    by_phase: Mapping[str, Counter[str]], running: Mapping[str, float], in_kernel: float
) -> dict[str, Counter[str]]:
    """Which samples are missing of each phase since the host of a GPU waits in the kernel, for each one that is there.

    Samples are of user mode. Where a host yields its core between looks at the device, or the kernel's shared page has
    no clock for it, a wait is mostly in the kernel. Whoever asks for the time waits for results in that phase. Where
    nobody does, the launch queue is full (seen on an H200 with driver 580: sched_yield takes 15 to 40 % of the running
    time then, and hardly any sample is of the clock).

    Args:
        by_phase: samples by the phase of their times.
        running: the running time by phase, in fractions.
        in_kernel: of the running time, the part in the kernel that nothing else explains.
    """
    sampled = sum(counts.total() for counts in by_phase.values())
    unsampled = sampled * in_kernel / (1 - in_kernel) if in_kernel < 1 else 0.0
    for_results = {
        phase
        for phase, counts in by_phase.items()
        if counts["clock"] >= max(thresholds.CERTAIN_CODE_SAMPLES, _CLOCK_OF_WAITS * counts.total())
    }
    missing = {
        phase: max(0.0, running.get(phase, 0.0) * (sampled + unsampled) - counts.total())
        for phase, counts in by_phase.items()
        if counts and (phase in for_results or not for_results)
    }
    total = sum(missing.values())
    known = min(1.0, unsampled / total) if total else 0.0
    kind = "clock" if for_results else QUEUED
    return {phase: Counter({kind: known * count / by_phase[phase].total()}) for phase, count in missing.items()}


def with_missing(by_phase: Mapping[str, Counter[str]], missing: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    """The samples, with those that are missing for each one that is there."""
    found = {phase: Counter(counts) for phase, counts in by_phase.items()}
    for phase, kinds in missing.items():
        for kind, count in kinds.items():
            found[phase][kind] += count * by_phase[phase].total()
    return found
