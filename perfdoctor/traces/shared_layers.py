"""Whether what a rank exchanges are activations, of layers that it shares with others, rather than gradients."""

from __future__ import annotations

import numpy as np

from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.loop import FORWARD, find_phases
from perfdoctor.traces.programs import only_passes_forward


def exchanges_activations(account: RankAccount) -> bool:
    """Whether most of the exposed communication is tensor parallelism's.

    Gradients are reduced while or after a backward pass runs; parameters of sharded models are gathered, not reduced.
    Ranks that share each layer reduce its results in the forward pass, and as much again in the backward pass.
    """
    if len(account.collectives) != 1:
        return False
    times = account.collectives[0]
    exposed = np.asarray(sum(times.amounts.values()))
    if not exposed.any():
        return False
    of = account.trace.host if times.on_host else account.trace.device
    reduces = account.trace.matching(profiler.REDUCES, of.name[times.rows])
    if not only_passes_forward(account):
        called = times.start if times.on_host else account.launched_at(times.rows)[1]
        reduces &= find_phases(account.host)[FORWARD].within(called, called + 1) > 0
    return bool(2 * exposed[reduces].sum() >= thresholds.MOSTLY * exposed.sum())
