"""What kind of program a rank runs: what launches its work, whether it trains, where it runs, and what it exchanges."""

from __future__ import annotations

import re

import numpy as np

from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.libraries import ADDED_UP, ALL_TO_ALL
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.communication import CollectiveTimes
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.loop import FORWARD, find_phases
from perfdoctor.traces.model import UNKNOWN, Bools, HostKind, distinct


def runs_compiled(account: RankAccount) -> bool:
    """Whether most of what devices work on was launched by code that torch.compile made."""
    trace = account.trace
    compiled = trace.matching(profiler.COMPILED, trace.host.name) & (trace.host.kind != HostKind.PYTHON)
    if not compiled.any():
        return False
    thread, called = account.launched_at(np.arange(len(trace.device)))
    inside = np.zeros(len(called), dtype=np.bool_)
    for one in distinct(trace.host.thread[compiled]).tolist():
        here = compiled & (trace.host.thread == one)
        times = Intervals.union(trace.host.start[here], trace.host.end[here])
        inside |= (thread == one) & (times.within(called, called + 1) > 0)
    return _is_most_work(account, inside)


def runs_graphs(account: RankAccount) -> bool:
    """Whether most of what devices work on was launched as graphs."""
    trace, call = account.trace, account.launches
    graphs = trace.matching(profiler.GRAPH_LAUNCH, trace.calls.name)
    if not graphs.any():
        return False
    inside = (call != UNKNOWN) & graphs[call]
    return _is_most_work(account, inside)


def _is_most_work(account: RankAccount, rows: Bools) -> bool:
    """Whether some of the devices' events are most of what the devices work on."""
    return bool(account.taken[rows].sum() >= thresholds.MOSTLY * max(account.taken.sum(), 1))


def only_passes_forward(account: RankAccount) -> bool:
    """Whether nothing is trained, as far as all operators and calls of a job on a device show."""
    trace = account.trace
    if not account.devices or not account.host.sees_operators:
        return False
    if not trace.matching(profiler.OF_ATEN, trace.host.name).any():
        return False
    return not any(
        trace.matching(profiler.TRAINS, names).any() for names in (trace.host.name, trace.calls.name, trace.device.name)
    )


def computes_on_cpu(account: RankAccount) -> bool:
    """Whether most of the operators' time is in those that compute on the CPU only, and nothing calls a GPU."""
    trace, operators = account.trace, account.operators
    if len(trace.device) or len(trace.calls):
        return False
    own = operators.own_time()
    on_cpu = trace.matching(profiler.ON_CPU, trace.host.name[operators.rows])
    return bool(on_cpu.any() and own[on_cpu].sum() >= thresholds.MOSTLY * own.sum())


def waits_for_unseen(account: RankAccount) -> bool:
    """Whether the host of a job without events of a device waits for one: it reads single numbers for long."""
    trace, operators = account.trace, account.operators
    if len(trace.device) or not len(operators):
        return False
    own = operators.own_time()
    reads = trace.matching(profiler.READS_NUMBER, trace.host.name[operators.rows])
    waits = reads & (own > thresholds.READS_AT_ONCE_NS)
    return bool(own[waits].sum() >= thresholds.HOST_WAITS * account.window.length)


def how_activations_are_exchanged(account: RankAccount) -> str:
    """How ranks exchange activations, if that is most of the exposed communication; "" otherwise.

    Gradients are reduced while or after a backward pass runs; parameters of sharded models are gathered, not reduced.
    Ranks that share each layer reduce its results in the forward pass, and as much again in the backward pass. Neither
    gradients nor parameters are sent all to all.
    """
    if len(account.collectives) != 1:
        return ""
    times = account.collectives[0]
    exposed = np.asarray(sum(times.amounts.values()))
    least = thresholds.MOSTLY * exposed.sum()
    if not exposed.any():
        return ""
    if exposed[_named(account, times, profiler.ALL_TO_ALL)].sum() >= least:
        return ALL_TO_ALL
    reduces = _named(account, times, profiler.REDUCES)
    if not only_passes_forward(account):
        called = times.start if times.on_host else account.launched_at(times.rows)[1]
        reduces &= find_phases(account.host)[FORWARD].within(called, called + 1) > 0
    return ADDED_UP if 2 * exposed[reduces].sum() >= least else ""


def _named(account: RankAccount, times: CollectiveTimes, pattern: re.Pattern[str]) -> Bools:
    """Which collectives have such a name, or carry what has one: NCCL's kernel for all-to-all is that of a send."""
    trace = account.trace
    of = trace.host if times.on_host else trace.device
    found = trace.matching(pattern, of.name[times.rows])
    if not times.on_host:
        messages = (trace.messages.get(int(row)) for row in times.rows)
        found |= np.array([one is not None and bool(pattern.search(one.name)) for one in messages], dtype=np.bool_)
    return found
