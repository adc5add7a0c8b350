"""Whether what a rank exchanges are activations, of layers that it shares with others, rather than gradients."""

from __future__ import annotations

import re

import numpy as np

from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.libraries import ADDED_UP, ALL_TO_ALL
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.communication import CollectiveTimes
from perfdoctor.traces.loop import FORWARD, find_phases
from perfdoctor.traces.model import Bools
from perfdoctor.traces.programs import only_passes_forward


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
