"""What is wrong with host, GPUs or fabric, and makes a cause dearer: more evidence and one more fix for its finding.

It is said only where the cause itself costs this job time. A link that has lost half of its lanes says nothing of a job
that copies nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from perfdoctor.causes import (
    BANDWIDTH,
    CHECKPOINT_WRITE,
    CONTENTION,
    GARBAGE_COLLECTION,
    GPU_COMPUTE,
    GPU_THROTTLED,
    HOST_TRANSFER,
    INPUT_PREPROCESSING,
    KERNEL_LAUNCH,
    LATENCY,
    MODEL_COMPUTE,
    PYTHON_OVERHEAD,
    STORAGE_READ,
    UNOBSERVED_RANK,
    WORKER_STARTUP,
)
from perfdoctor.diagnosis import Advice, Finding, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.rules.case import Case
from perfdoctor.rules.gains import with_gain
from perfdoctor.rules.rule import by_gain

# Whose time goes with the clock of the cores.
_COMPUTES = frozenset((
    INPUT_PREPROCESSING, WORKER_STARTUP, PYTHON_OVERHEAD, KERNEL_LAUNCH, GARBAGE_COLLECTION, MODEL_COMPUTE
))  # fmt: skip
# Whose threads allocate memory or read files, and wait where there is none left.
_FILLS_MEMORY = frozenset((
    STORAGE_READ, CHECKPOINT_WRITE, INPUT_PREPROCESSING, PYTHON_OVERHEAD, MODEL_COMPUTE
))  # fmt: skip
_EXCHANGES = frozenset((BANDWIDTH, LATENCY, UNOBSERVED_RANK))


@dataclass(frozen=True)
class Condition:
    """One thing that may be wrong.

    Attributes:
        causes: what it makes dearer.
        holds: whether it is so, seen from one of these causes.
        evidence: names of the numbers that show it; see ``perfdoctor.metrics.names``.
        fix: what to do.
    """

    causes: frozenset[str]
    holds: Callable[[Case, str], bool]
    evidence: tuple[str, ...]
    fix: Callable[[Case], Advice]


def with_health(found: Finding, case: Case) -> Finding:
    """The same finding, with all conditions that make its cause dearer."""
    for condition in CONDITIONS:
        if found.cause in condition.causes and condition.holds(case, found.cause):
            shown = [one for name in condition.evidence for one in case.evidence(name) if one not in found.evidence]
            fixes = by_gain((*found.fixes, with_gain(condition.fix(case), case, found.cause)))
            found = replace(found, evidence=(*found.evidence, *shown), fixes=fixes)
    return found


def _at_least(name: str, threshold: float) -> Callable[[Case, str], bool]:
    """That a number was measured and is no less."""
    return lambda case, _: (case.number(name) or 0.0) >= threshold


def _is_degraded(name: str) -> Callable[[Case, str], bool]:
    """That a link was measured, and is slower than it has to be."""

    def holds(case: Case, cause: str) -> bool:
        link = case.number(name)
        return link is not None and link <= thresholds.DEGRADED_LINK

    return holds


def _mend_pcie(case: Case) -> Advice:
    return advise("health.mend_pcie", link=case.number("pcie_link"))


def _mend_pcie_errors(case: Case) -> Advice:
    return advise("health.mend_pcie_errors", replays=case.measured("pcie_replays"))


def _mend_nvlink(case: Case) -> Advice:
    down = case.number("nvlinks_down") or 0.0
    return advise("health.mend_nvlink", down=down)


def _mend_nvlink_errors(case: Case) -> Advice:
    return advise("health.mend_nvlink_errors", errors=case.measured("nvlink_errors"))


def _mend_fabric_link(case: Case) -> Advice:
    return advise("health.mend_fabric_link", link=case.number("fabric_link"))


def _mend_fabric(case: Case) -> Advice:
    return advise("health.mend_fabric", errors=case.measured("fabric_errors"))


def _lies_in_few(case: Case, cause: str) -> bool:
    """Whether a cause lies in some ranks and not in others, or the same kernels take longer on one."""
    ranks = set(case.culprits.get(cause, ()))
    slower = (case.number("traced_same_kernels") or 0.0) >= thresholds.SLOWER_GPU
    return slower or 0 < len(ranks) < len(case.trainers)


def _has_faults(case: Case, cause: str) -> bool:
    """Whether GPUs are faulty, and what they do takes some ranks longer than others, or all wait for each other."""
    faulty = (case.number("xid_errors") or 0.0) > 0 or (case.number("gpu_repairs_pending") or 0.0) > 0
    return faulty and (cause in _EXCHANGES or _lies_in_few(case, cause))


def _replace_gpu(case: Case) -> Advice:
    return advise(
        "health.replace_gpu", errors=case.measured("xid_errors"), repairs=case.number("gpu_repairs_pending") or 0.0
    )


def _bind_near_gpu(case: Case) -> Advice:
    return advise("health.bind_near_gpu", away=case.number("far_from_gpu"), distance=case.number("gpu_distance"))


def _has_low_clock(case: Case, cause: str) -> bool:
    below, hot = case.number("core_clock_deficit") or 0.0, case.number("heat_limited_cores") or 0.0
    return below >= thresholds.CLOCK_BELOW_NOMINAL or hot >= thresholds.HEAT_LIMITED


def _raise_core_clock(case: Case) -> Advice:
    below, hot = case.number("core_clock_deficit"), case.number("heat_limited_cores")
    return advise("health.raise_core_clock", below=below, hot=hot)


def _leave_host(case: Case) -> Advice:
    stolen = case.number("stolen_share") or 0.0
    return advise("health.leave_host", stolen=stolen)


def _lacks_memory(case: Case, cause: str) -> bool:
    """Whether the job's control group stalls for memory; where it does not say (version 1), whether it reads again.

    A group that only reads files hits its limit too, and gives back page cache that nobody misses.
    """
    stalled = case.number("memory_stalled")
    if stalled is not None:
        return stalled >= thresholds.MEMORY_STALLED
    at_limit = (case.number("limit_hits") or 0.0) >= thresholds.LIMIT_HITS_PER_S
    return cause == STORAGE_READ and at_limit and (case.number("read_again") or 0.0) >= thresholds.MUCH_READ_AGAIN


def _give_memory(case: Case) -> Advice:
    return advise(
        "health.give_memory",
        stalled=case.number("memory_stalled"),
        hits=case.measured("limit_hits"),
        limit=case.setting("memory_limit_bytes"),
    )


def _compacts(case: Case, cause: str) -> bool:
    """Whether allocations wait until memory is moved together, and tasks do stall for memory."""
    stalled = max(case.number("memory_stalled") or 0.0, case.number("memory_pressure") or 0.0)
    often = (case.number("compaction_stalls") or 0.0) >= thresholds.COMPACTIONS_PER_S
    return often and stalled >= thresholds.MEMORY_STALLED


def _defer_compaction(case: Case) -> Advice:
    return advise("health.defer_compaction", stalls=case.measured("compaction_stalls"))


CONDITIONS: tuple[Condition, ...] = (
    Condition(frozenset((HOST_TRANSFER,)), _is_degraded("pcie_link"), ("pcie_link",), _mend_pcie),
    Condition(
        frozenset((HOST_TRANSFER,)),
        _at_least("pcie_replays", thresholds.LINK_ERRORS_PER_S),
        ("pcie_replays",),
        _mend_pcie_errors,
    ),
    Condition(
        frozenset((BANDWIDTH,)), _at_least("nvlinks_down", thresholds.NVLINKS_DOWN), ("nvlinks_down",), _mend_nvlink
    ),
    Condition(
        frozenset((BANDWIDTH, LATENCY)),
        _at_least("nvlink_errors", thresholds.LINK_ERRORS_PER_S),
        ("nvlink_errors",),
        _mend_nvlink_errors,
    ),
    Condition(_EXCHANGES, _is_degraded("fabric_link"), ("fabric_link",), _mend_fabric_link),
    Condition(
        _EXCHANGES,
        _at_least("fabric_errors", thresholds.LINK_ERRORS_PER_S),
        ("fabric_errors", "fabric_received"),
        _mend_fabric,
    ),
    Condition(
        _EXCHANGES | {GPU_COMPUTE, GPU_THROTTLED}, _has_faults, ("xid_errors", "gpu_repairs_pending"), _replace_gpu
    ),
    Condition(
        frozenset((HOST_TRANSFER, KERNEL_LAUNCH)),
        _at_least("far_from_gpu", thresholds.FAR_FROM_GPU),
        ("far_from_gpu", "gpu_distance"),
        _bind_near_gpu,
    ),
    Condition(_COMPUTES, _has_low_clock, ("core_clock_deficit", "heat_limited_cores"), _raise_core_clock),
    Condition(_COMPUTES | {CONTENTION}, _at_least("stolen_share", thresholds.STOLEN), ("stolen_share",), _leave_host),
    Condition(_FILLS_MEMORY, _lacks_memory, ("memory_stalled", "limit_hits", "read_again", "reclaimed"), _give_memory),
    Condition(_FILLS_MEMORY, _compacts, ("compaction_stalls",), _defer_compaction),
)
