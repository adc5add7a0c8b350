"""Idle time of which a trace shows no reason: within which marks of the job it lies, at least."""

from __future__ import annotations

import numpy as np

from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.idle import Reason
from perfdoctor.traces.model import HostKind
from perfdoctor.traces.nesting import NONE, nest

# As for a straggler's excess: what explains less of the time is not told.
_MOST = 0.8
_STEP = "ProfilerStep"


def mark_around_unseen(account: RankAccount) -> str:
    """The innermost annotation (``record_function``, or PyTorch's own) around most of the unexplained idle time.

    Returns:
        Its name; "" where there is none, or no such time.
    """
    trace, main = account.trace, account.host.main
    total = sum(float(gaps.reasons[Reason.UNSEEN].sum()) for gaps in account.gaps)
    if main is None or not total:
        return ""
    steps = np.array([name.startswith(_STEP) for name in trace.names])
    marks = nest(trace.host, (trace.host.kind == HostKind.ANNOTATION) & ~trace.named(steps, trace.host.name))
    taken = np.zeros(len(trace.names))
    for gaps in account.gaps:
        middle = gaps.until - (gaps.end - gaps.start) // 2
        row = marks.innermost(np.full(len(middle), main), middle)
        inside = row != NONE
        np.add.at(taken, trace.host.name[row[inside]], gaps.reasons[Reason.UNSEEN][inside])
    longest = int(taken.argmax())
    return trace.names[longest] if taken[longest] >= _MOST * total else ""
