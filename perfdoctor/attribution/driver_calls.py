"""What allocates and frees a device's memory, in calls of its driver, and how busy the device is besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.gpu_use import GpuUse
from perfdoctor.attribution.share import DEVICE_WAIT, MAPPING
from perfdoctor.causes import LOW_OCCUPANCY, MEMORY_PRESSURE
from perfdoctor.knowledge import thresholds


def frees_memory(host: Mapping[str, float]) -> bool:
    """Whether a host certainly frees its device's memory: time in the kernel alone may be more than usual by chance.

    Args:
        host: what the host does, cause to fraction of wall time.
    """
    sure = host.get(MEMORY_PRESSURE, 0.0) + max(0.0, host.get(MAPPING, 0.0) - thresholds.USUAL_KERNEL_TIME)
    return sure >= thresholds.ALLOCATES


def with_calls(account: Account, use: GpuUse, busy: float | None) -> tuple[Account, GpuUse, float | None]:
    """What allocates and frees the device's memory, what the device is used for besides, and for how long.

    Memory is freed when the device is through with all that it was given, and it idles until it is given more; its
    driver counts that as busy (seen on an H200: 0.997 with the cache emptied in each step, where kernels ran for 0.85).
    Other calls of the driver in which the device goes on working are waits for it.
    """
    fractions = account.causes().fractions()
    mapping, called = fractions.get(MAPPING, 0.0), fractions.get(MEMORY_PRESSURE, 0.0)
    if busy is not None and mapping:
        use, busy = without_mapping(use, busy, mapping)
    waits = max(0.0, called - (1 - busy - mapping)) / called if busy is not None and called else 0.0
    account = account.moved(MEMORY_PRESSURE, {DEVICE_WAIT: waits, MEMORY_PRESSURE: 1 - waits})
    return account.moved(MAPPING, {MEMORY_PRESSURE: 1.0}), use, busy


def without_mapping(use: GpuUse, busy: float, mapping: float) -> tuple[GpuUse, float]:
    """The use, and busy time, without the time in which memory is allocated and freed, as far as that is counted.

    It keeps no multiprocessor active. Where those are less active than kernels at work keep them for as long as the
    driver says that kernels run, it has counted that; and no kernels are said to be small for what it has.

    Args:
        use: of some GPUs.
        busy: fraction of the time in which they are busy, as the driver says.
        mapping: fraction of it in which the host allocates and frees their memory.
    """
    computing = min(busy, 1 - mapping)
    if use.active is not None:
        computing = min(computing, max(busy - mapping, use.active / thresholds.SM_AT_WORK))
    amounts = {cause: busy * part for cause, part in use.parts.items()}
    if low := amounts.pop(LOW_OCCUPANCY, 0.0):
        amounts[LOW_OCCUPANCY] = max(0.0, low - (busy - computing))
    total = sum(amounts.values())
    parts = {cause: amount / total for cause, amount in amounts.items() if amount > 0} if total else use.parts
    return replace(use, parts=parts), computing
