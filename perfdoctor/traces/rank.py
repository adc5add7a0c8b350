"""What remains of a rank's trace when it has been accounted for: little enough to hold thousands of ranks at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfdoctor.amounts import Amounts
from perfdoctor.diagnosis import Evidence, NotExamined
from perfdoctor.traces.account import RankAccount, account_for
from perfdoctor.traces.collectives import Collectives, list_collectives
from perfdoctor.traces.evidence import mean_evidence, measure_trace
from perfdoctor.traces.kernel_evidence import time_kernels
from perfdoctor.traces.model import Trace
from perfdoctor.traces.origins import Origins, find_origins
from perfdoctor.traces.paces import Paces, measure_paces
from perfdoctor.traces.roofline import Roofline, compare_with_peak
from perfdoctor.traces.silence import missing_in_trace, why_silent
from perfdoctor.traces.steps import Window
from perfdoctor.traces.unseen import mark_around_unseen


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a job.

    Attributes:
        number: as the file says; None if it does not.
        origin_ns: the host's clock (Unix time) at the trace's time 0; None where the file has only times since boot.
        slices: nanoseconds by cause in each slice of the window, as this trace alone shows them.
        loading: fraction of the window in which the main thread fetches batches.
        workers: 1 if the loader has worker processes (how many is not in a trace), else 0.
        devices: names of those at work.
        numbers: what was measured, by the names of ``perfdoctor.metrics.names``.
        kernels: nanoseconds by cause and name of a kernel.
        paces: what kernels take, to compare with other ranks'.
        origins: nanoseconds by cause and operator, and by cause and source line.
        roofline: how near its operators come to the GPU's peak.
        unseen: the annotation around its idle time of which the trace shows no reason; "" if there is none.
        silence: why this trace does not suffice for a verdict; "" if it does.
        missing: what the trace does not show.
    """

    source: str
    number: int | None
    world: int | None
    host_name: str
    pid: int | None
    origin_ns: int | None
    events: int
    window: Window
    slices: list[Amounts[str]]
    loading: float
    workers: int
    devices: tuple[str, ...]
    capability: float | None
    numbers: dict[str, float]
    kernels: dict[str, Amounts[str]]
    paces: Paces
    origins: Origins
    roofline: Roofline
    unseen: str
    silence: str
    missing: tuple[NotExamined, ...]
    collectives: Collectives


def summarize(trace: Trace) -> Rank:
    """Accounts for a trace, and keeps what the diagnosis of a job needs of it."""
    account = account_for(trace)
    roofline = compare_with_peak(account)
    return Rank(
        source=trace.source,
        number=trace.rank,
        world=trace.world,
        host_name=trace.host_name,
        pid=_pid(account),
        origin_ns=trace.origin_ns,
        events=trace.events,
        window=account.window,
        slices=account.slices,
        loading=account.loading,
        workers=int(any("_MultiProcessingDataLoaderIter" in name for name in trace.names)),
        devices=tuple(_device_name(account, device.device) for device in account.devices),
        capability=_capability(account),
        numbers=measure_trace(account),
        kernels=time_kernels(account),
        paces=measure_paces(account),
        origins=find_origins(account),
        roofline=roofline,
        unseen=mark_around_unseen(account),
        silence=why_silent(account),
        missing=(*missing_in_trace(account), *roofline.missing),
        collectives=list_collectives(account),
    )


def gather_numbers(ranks: Sequence[Rank]) -> dict[str, Evidence]:
    """What was measured, as a mean over the ranks; rooflines are the first rank's that has one."""
    compared = next((rank.roofline for rank in ranks if rank.roofline.operators), Roofline())
    return {**mean_evidence(rank.numbers for rank in ranks), **compared.numbers()}


def _pid(account: RankAccount) -> int | None:
    if account.host.main is None:
        return None
    process = account.trace.threads[account.host.main][0]
    return int(process) if process.isdigit() else None


def _device_name(account: RankAccount, device: int) -> str:
    properties = account.trace.devices.get(device)
    return f"{device}: {properties.name}" if properties is not None and properties.name else str(device)


def _capability(account: RankAccount) -> float | None:
    if not account.devices:
        return None
    properties = account.trace.devices.get(account.devices[0].device)
    return None if properties is None else properties.capability
