"""What remains of a rank's trace when it has been accounted for: little enough to hold thousands of ranks at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from perfdoctor.causes import PYTHON_OVERHEAD, STARTUP
from perfdoctor.diagnosis import Evidence, NotExamined
from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.frames import Frame
from perfdoctor.knowledge.libraries import ADDED_UP, USES
from perfdoctor.knowledge.profiler import Work
from perfdoctor.metrics.names import TRACE
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.quantiles import median
from perfdoctor.traces.account import RankAccount, account_for
from perfdoctor.traces.call_sites import CallSites, SourceLines, annotation_around_unexplained, find_call_sites
from perfdoctor.traces.collectives import Collectives, list_collectives
from perfdoctor.traces.coverage import missing_in_trace, why_silent
from perfdoctor.traces.device import IdleReason
from perfdoctor.traces.host import HostActivity
from perfdoctor.traces.interference import measure_beside_collectives
from perfdoctor.traces.intervals import NONE, Intervals
from perfdoctor.traces.kernel_stats import KernelTimes, measure_kernels, time_kernels, time_same_kernels
from perfdoctor.traces.loop import WholeSteps, find_loop
from perfdoctor.traces.model import DeviceKind, HostKind, Trace
from perfdoctor.traces.programs import how_activations_are_exchanged, only_passes_forward, runs_compiled, runs_graphs
from perfdoctor.traces.replay import without_profiler
from perfdoctor.traces.roofline import Roofline, compare_with_peak
from perfdoctor.traces.steps import TraceWindow

# What may be told of a job by frames of libraries in a trace, whose files are named from the search path on.
_SHOWN_BY_FRAMES = frozenset(("parallel", "tensor_parallel", "loop", "evaluation_loop", "sync_batch_norm"))
_SEARCHED = "/site-packages/"


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a job.

    Attributes:
        number: as the file says; None if it does not.
        slices: nanoseconds by cause in each slice of the window, as this trace alone shows them.
        origin_ns: the host's clock (Unix time) at the trace's time 0; None where the file has only times since boot.
        loading: fraction of the window in which the main thread fetches batches.
        workers: 1 if the loader has worker processes (how many is not in a trace), else 0.
        uses: what else it shows of the settings that ``perfdoctor.metrics.settings`` lists: how the ranks share the
            model, whose loop trains it.
        devices: names of those at work.
        numbers: what was measured, by the names of ``perfdoctor.metrics.names``.
        kernels: nanoseconds by cause and name of a kernel.
        same_kernels: what kernels take, to compare with the same ones on other ranks.
        call_sites: nanoseconds by cause and operator, and by cause and source line.
        loop: its steps, marked or not, and their phases.
        roofline: how near its operators come to the GPU's peak.
        content: a digest of all times in the trace: the same only if one file was made from the other; "" if unknown.
        unexplained: the annotation around its idle time of which the trace shows no reason; "" if there is none.
        silence: why this trace does not suffice for a verdict; "" if it does.
        missing: what the trace does not show.
    """

    source: str
    number: int | None
    events: int
    window: TraceWindow
    slices: list[Amounts[str]]
    collectives: Collectives
    world: int | None = None
    host_name: str = ""
    pid: int | None = None
    origin_ns: int | None = None
    loading: float = 0.0
    workers: int = 0
    uses: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    capability: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, Amounts[str]] = field(default_factory=dict)
    same_kernels: KernelTimes = field(default_factory=dict)
    call_sites: CallSites = field(default_factory=CallSites)
    loop: WholeSteps = field(default_factory=WholeSteps)
    roofline: Roofline = field(default_factory=Roofline)
    content: str = ""
    unexplained: str = ""
    silence: str = ""
    missing: tuple[NotExamined, ...] = ()


def summarize(trace: Trace, *, undisturbed: bool = True) -> Rank:
    """Accounts for a trace, and keeps what the diagnosis of a job needs of it.

    Args:
        trace: of a rank.
        undisturbed: whether the account is to be that of the job without a profiler, where that can be told. Its steps
            are always those of the trace. Whoever knows how long the job's steps are without one needs no estimate.
    """
    traced = account_for(trace)
    estimate = without_profiler(traced) if undisturbed else None
    account = traced if estimate is None else estimate.account
    roofline = compare_with_peak(account)
    lines = SourceLines(account.trace, account.host.main)
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
        workers=int(any(profiler.LOADER_WITH_WORKERS in name for name in trace.names)),
        uses=_uses(account),
        devices=tuple(_device_name(account, device.device) for device in account.devices),
        capability=_capability(account),
        numbers={**measure_trace(account), **(estimate.numbers if estimate else {})},
        kernels=time_kernels(account),
        same_kernels=time_same_kernels(account),
        call_sites=find_call_sites(account, lines),
        loop=find_loop(traced, SourceLines(trace, traced.host.main) if estimate else lines),
        roofline=roofline,
        content=_digest(trace),
        unexplained=annotation_around_unexplained(account),
        silence=why_silent(account),
        missing=(*missing_in_trace(account), *roofline.missing),
        collectives=list_collectives(account),
    )


def gather_numbers(ranks: Sequence[Rank]) -> dict[str, Evidence]:
    """What was measured, as a mean over the ranks; rooflines are the first rank's that has one."""
    compared = next((rank.roofline for rank in ranks if rank.roofline.operators), Roofline())
    return {**mean_evidence(rank.numbers for rank in ranks), **compared.numbers()}


def _digest(trace: Trace) -> str:
    """Of the job's size and the times of all events, in nanoseconds: two processes never agree in all of them."""
    digest = blake2b(str(trace.world).encode(), digest_size=16)
    for table in (trace.device, trace.host, trace.calls):
        for column in (table.start, table.end):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _uses(account: RankAccount) -> dict[str, str]:
    """By PyTorch's own marks, with stacks by the frames of libraries, which say more, and by what is exchanged when."""
    trace = account.trace
    host, marks = trace.host, profiler.SHARES_MODEL
    found: dict[str, str] = {}
    called = (trace.names[name] for name in trace.occurring(host.name[host.kind == HostKind.PYTHON]))
    frames = [
        Frame(f"{_SEARCHED}{one['file']}", one["function"], 0) for one in map(profiler.FRAME.fullmatch, called) if one
    ]
    for use in USES:
        if use.setting in _SHOWN_BY_FRAMES and use.setting not in found and any(map(use.shows, frames)):
            found[use.setting] = use.value
    marked = next((way for mark, way in marks if any(name.startswith(mark) for name in trace.names)), "")
    if marked:
        found.setdefault("parallel", marked)
    if not found.keys() & {"parallel", "loop"} and only_passes_forward(account):
        found["trains"] = "no"
    activations = how_activations_are_exchanged(account)
    if not activations and "tensor_parallel" in found and "parallel" not in found:
        activations = ADDED_UP
    if activations:
        found["activations"] = activations
    if trace.matching(profiler.PASSES_ON, host.name).any():
        found["pipeline"] = "yes"
    if runs_compiled(account):
        found["compiled"] = "yes"
    if runs_graphs(account):
        found["graphs"] = "yes"
    return found


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


def measure_trace(account: RankAccount) -> dict[str, float]:
    """What could be measured on one rank."""
    measured = {**_of_devices(account), **_of_host(account), **measure_kernels(account)}
    if account.gaps:
        measured |= _of_waiting_host(account)
    measured |= measure_beside_collectives(account)
    return {name: value for name, value in measured.items() if value is not None}


def mean_evidence(ranks: Iterable[Mapping[str, float]]) -> dict[str, Evidence]:
    """Means over the ranks of what was measured; a number that no rank has is absent."""
    found: dict[str, list[float]] = {}
    for numbers in ranks:
        for name, value in numbers.items():
            found.setdefault(name, []).append(value)
    return {name: _evidence(name, float(np.mean(values))) for name, values in found.items()}


def _evidence(name: str, value: float) -> Evidence:
    words, unit, probe = TRACE[name]
    return Evidence(words, round(value, 4), unit, probe)


def _of_devices(account: RankAccount) -> dict[str, float | None]:
    if not account.devices or not account.window.length:
        return {}
    length = account.window.length
    device = account.trace.device
    inside = (device.start >= account.window.start) & (device.start < account.window.end)
    kernels = inside & (device.kind == DeviceKind.KERNEL) & (account.work != Work.COMMUNICATION)
    taken = (device.end - device.start)[kernels]
    collectives = inside & (account.work == Work.COMMUNICATION)
    count = len(account.devices)
    found = {
        "traced_busy": sum(one.busy.total for one in account.devices) / count / length,
        "traced_kernels": int(inside.sum()) / count / (length / NS_PER_S),
        "traced_copies": sum(one.alone[Work.COPY].total for one in account.devices) / count / length,
        "traced_kernel_time": median(taken) / 1000 if len(taken) else None,
        "traced_short_kernels": float((taken < thresholds.SHORT_KERNEL_NS).mean()) if len(taken) else None,
        "traced_launch_delay": _launch_delay(account),
        "traced_memory": _memory(account),
    }
    if collectives.any():
        exposed = sum(one.alone[Work.COMMUNICATION].total for one in account.devices)
        hidden = sum(one.hidden_communication for one in account.devices)
        found["traced_collectives"] = int(collectives.sum()) / count / (length / NS_PER_S)
        found["traced_exposed"] = exposed / count / length
        found["traced_hidden"] = hidden / count / length
    return found


def _launch_delay(account: RankAccount) -> float | None:
    """Microseconds; None also where the host's and the device's clocks disagree, and the delay comes out negative."""
    delays = [gaps.launch_delay_ns for gaps in account.gaps if gaps.launch_delay_ns is not None]
    return min(delays) / 1000 if delays and min(delays) >= 0 else None


def _memory(account: RankAccount) -> float | None:
    """Of the fullest device; None where allocations or sizes are not reported."""
    trace = account.trace
    sizes = {device: one.memory_bytes for device, one in trace.devices.items() if one.memory_bytes}
    known = sizes.keys() & trace.reserved.keys()
    return max((trace.reserved[device] / sizes[device] for device in known), default=None)


def _of_waiting_host(account: RankAccount) -> dict[str, float | None]:
    """What the GPU waited for on the host beside launching: what is done once, and what its overhead consists of."""
    idle = {reason: account.idle_for(reason) for reason in IdleReason}
    seconds = account.window.length / NS_PER_S
    startup = sum(amount for reason, amount in idle.items() if account.cause_of(reason) == STARTUP)
    compiling = idle[IdleReason.COMPILING] if IdleReason.COMPILING in account.done_once else 0.0
    overhead = sum(amount for reason, amount in idle.items() if account.cause_of(reason) == PYTHON_OVERHEAD)
    found: dict[str, float | None] = {
        "traced_startup": startup * seconds or None,
        "traced_first_compiling": compiling * seconds or None,
    }
    if overhead >= thresholds.REPORTED_SHARE:  # of a rank with next to none the parts say nothing
        found["traced_outside"] = idle[IdleReason.OUTSIDE] / overhead
        found["traced_in_operator"] = idle[IdleReason.IN_OPERATOR] / overhead
        found["traced_own_code"] = idle[IdleReason.OWN_CODE] / overhead
    return found


def _of_host(account: RankAccount) -> dict[str, float | None]:
    length = account.window.length
    calls = account.trace.calls
    if not length or not len(account.trace.host) + len(calls):
        return {}
    whole = Intervals.one(account.window.start, account.window.end)
    everywhere = account.host.activity(None)
    inside = (calls.start >= account.window.start) & (calls.start < account.window.end)
    per_second = NS_PER_S / length
    found: dict[str, float | None] = {}
    found["traced_loading"] = account.loading
    compiling = (everywhere[HostActivity.COMPILING] & whole).total
    if compiling and account.recompiles:
        found["traced_compiling"] = compiling / length
    if account.window.steps:
        outermost = account.operators.inside(account.window.start, account.window.end)
        outermost &= account.operators.parent == NONE
        found["traced_operators"] = float(outermost.sum()) / len(account.window.steps) or None
    if len(calls):
        found["traced_waits"] = int((inside & account.host.draining).sum()) * per_second
        found["traced_waiting"] = (everywhere[HostActivity.SYNCHRONIZING] & whole).total / length
        if account.host.copying_in.any():
            blocked = Intervals.union(calls.start[account.host.blocked], calls.end[account.host.blocked])
            found["traced_blocked"] = (blocked & whole).total / length
        found["traced_allocations"] = int((inside & account.host.allocating).sum()) * per_second
    return found
