"""What the host of a GPU runs: it waits for the device, gives it work, or does something of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.symbols import DRIVERS
from perfdoctor.timeline.code_location import PREPARES

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
    for_pool = split["yield"] * _of_pool(counts)
    split["yield"] -= for_pool  # type: ignore[assignment]
    split["spin"] += for_pool  # type: ignore[assignment]
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
    return min(1.0, _in_driver(counts) / called) if called else 0.0


def _in_driver(counts: Mapping[str, float]) -> float:
    return sum(counts.get(kind, 0) for kind in DRIVERS)


def missing_waits(
    by_phase: Mapping[str, Counter[str]], running: Mapping[str, float], in_kernel: float, *, allocates: bool
) -> dict[str, Counter[str]]:
    """Which samples are missing of each phase since the host of a GPU waits in the kernel, for each one that is there.

    Samples are of user mode. Where a host yields its core between asking the device, or the kernel's shared page has
    no clock for it, a wait is mostly in the kernel. Whoever asks for the time waits for results in that phase. Where
    nobody does, the launch queue is full (seen on an H200 with driver 580: sched_yield takes 15 to 40 % of the running
    time then, and hardly any sample is of the clock). What yields do not account for may be anything else; of a job
    that allocates the device's memory, the driver's calls.

    Args:
        by_phase: samples by the phase of their times.
        running: the running time by phase, in fractions.
        in_kernel: of the running time, the part in the kernel that nothing else explains.
        allocates: the driver is called to allocate and free memory.
    """
    asks = {phase for phase, counts in by_phase.items() if _asks_time(counts)}
    for_results = set() if allocates else asks
    found: dict[str, Counter[str]] = {}
    for phase, missing in _missing(by_phase, running, in_kernel, for_results or by_phase).items():
        counts = by_phase[phase]
        waits = missing if for_results else min(missing, thresholds.KERNEL_PER_YIELD * counts["yield"])
        for_pool = waits * _of_pool(counts) if counts["yield"] else 0.0
        kinds = {"clock" if phase in asks else QUEUED: waits - for_pool, "spin": for_pool}
        found[phase] = Counter({kind: count / counts.total() for kind, count in kinds.items() if count})
    return found


def _of_pool(counts: Mapping[str, float]) -> float:
    """Of what yields the core, the part at barriers of the intra-op pool: its threads wait awake as well."""
    spin = counts.get("spin", 0)
    return spin / (spin + _in_driver(counts)) if spin else 0.0


def _asks_time(counts: Counter[str]) -> bool:
    """Whether what runs in a phase asks for the time as often as a host that waits in it for long enough to matter."""
    return counts["clock"] >= max(thresholds.CERTAIN_CODE_SAMPLES, _CLOCK_OF_WAITS * counts.total())


def _missing(
    by_phase: Mapping[str, Counter[str]], running: Mapping[str, float], in_kernel: float, phases: Collection[str]
) -> dict[str, float]:
    """How many samples are missing of each of some phases, as far as time in the kernel explains it."""
    sampled = sum(counts.total() for counts in by_phase.values())
    unsampled = sampled * in_kernel / (1 - in_kernel) if in_kernel < 1 else 0.0
    missing = {
        phase: max(0.0, running.get(phase, 0.0) * (sampled + unsampled) - by_phase[phase].total())
        for phase in phases
        if by_phase[phase]
    }
    total = sum(missing.values())
    return {phase: count * min(1.0, unsampled / total) if total else 0.0 for phase, count in missing.items()}


def _mostly_drives(counts: Counter[str]) -> bool:
    return _in_driver(counts) >= thresholds.MOSTLY * counts.total() > 0


def mapping_by_phase(
    by_phase: Mapping[str, Counter[str]],
    running: Mapping[str, float],
    in_kernel: float,
    most: float,
    busy_otherwise: Collection[str],
) -> dict[str, float]:
    """Of each phase's running time, the part in which the kernel allocates and frees the device's memory.

    That is what yields do not account for (``missing_waits``). It is the same in all phases in which it may: what one
    of them gives back another one asks for again.

    Args:
        by_phase: samples by the phase of their times.
        running: the running time by phase, in fractions.
        in_kernel: of the running time, the part in the kernel that nothing else explains.
        most: the same without what something else is known to be.
        busy_otherwise: phases in which the kernel has other things to do: it reads and writes. So it has in front of
            the model's call, where it clears pages for batches, unless mostly the driver runs there.
    """
    missing = _missing(by_phase, running, in_kernel, by_phase)
    phases = [
        phase
        for phase, part in running.items()
        if part > 0 and phase not in busy_otherwise and (phase != PREPARES or _mostly_drives(by_phase[phase]))
    ]
    yields = sum(by_phase[phase]["yield"] for phase in phases if phase in by_phase)
    mapping = sum(missing.get(phase, 0.0) for phase in phases) - thresholds.KERNEL_PER_YIELD * yields
    whole = sum(counts.total() for counts in by_phase.values()) / (1 - in_kernel)
    part = min(mapping / whole, most) / sum(running[phase] for phase in phases) if mapping > 0 else 0.0
    return dict.fromkeys(phases, min(1.0, part))


def with_missing(by_phase: Mapping[str, Counter[str]], missing: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    """The samples, with those that are missing for each one that is there."""
    found = {phase: Counter(counts) for phase, counts in by_phase.items()}
    for phase, kinds in missing.items():
        for kind, count in kinds.items():
            found[phase][kind] += count * by_phase[phase].total()
    return found
