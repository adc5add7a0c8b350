"""What advice about the input brings: cheaper preparation, workers, and handing batches over."""

from __future__ import annotations

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.slow_calls import SLOW_CALLS
from perfdoctor.rules.estimates import of_line
from perfdoctor.rules.neighbours import has_neighbours
from perfdoctor.rules.proposed import Gain, Proposed
from perfdoctor.rules.workers import OF_WORKERS, freed_without_workers, plan_workers


def of_slow_call(fix: Proposed) -> Gain | None:
    """What ``of_line`` says; of a call that is known to be slow in one way, half of what it takes is sure to be spared.

    Where four such calls were mended (a deque sampled, rows and columns of sparse matrices, frames backwards), 0.8 to
    1.3 of what they took went.
    """
    whole = of_line(fix)
    if whole is None or fix["kind"] not in SLOW_CALLS:
        return whole
    call = fix.frees(0.5 * fix["part"], 0.8 * fix["part"], fix["part"])
    return Gain(call.least, max(call.likely, call.least), max(whole.most, call.most))


def by_name(fix: Proposed) -> Gain:
    """What sharing tensors by name saves of asking for the file of each.

    Measured on 2 busy cores, torch 2.13: of its core the trainer needs 80 us for a tensor by file, and 15 to 25 us by
    name; with its waits, batches of three small tensors took 36 to 70 % less to take over.
    """
    part = fix["part"]
    return fix.frees(0.3 * part, 0.5 * part, 0.8 * part)


def by_fewer_tensors(fix: Proposed) -> Gain | None:
    """What unpickling takes; where a file is asked for each tensor, two of them may take as long as a hundred."""
    mostly_by_file = (fix.case.number("taken_by_file") or 0.0) >= thresholds.MOSTLY
    return None if mostly_by_file else fix.frees(0.0, 1.0, 1.0)


def before_draws(fix: Proposed) -> Gain:
    """What is the same in each epoch."""
    kept = 1 - (fix["drawn"] or 0.0)
    return fix.frees(0.0, kept, kept)


def by_buffered_reads(fix: Proposed) -> Gain:
    """What read calls take, and what the interpreter does for each of them.

    Of a job in which they took 0.14 of the time, 0.12 to 0.32 went.
    """
    share = fix["share"]
    return Gain(0.7 * share, share, 1.5 * share)


def by_fewer_passes(fix: Proposed) -> Gain:
    """What is prepared for a whole pass over the data, where every fourth pass does it, or the first alone."""
    part = min(1.0, fix["share"] / fix.share) if fix.share else 0.0
    return fix.frees(0.5 * part, 0.75 * part, part)


def by_workers(fix: Proposed) -> Gain | None:
    """What the plan leaves; workers help against all causes in the input, and this one gains no more than its share."""
    plan, share = plan_workers(fix.case, fix.cause), fix.share
    if plan is None:
        return None
    low, high = fix.case.range_of(fix.cause)
    streamed = fix.case.settings.get("streamed") == "yes"
    # Without free cores a worker takes one from the arithmetic; what comes over a network may be all that it carries.
    # A stream of few shards keeps few workers busy, and beside other programs a worker gets what these leave of a core
    # (measured, 1.6 of 2 cores taken: 0.9 times the pace where 1.2 was to be expected).
    sure = plan.cores is not None and not streamed and not has_neighbours(fix.case)
    known = low if sure and not fix.case.comes_over_network(fix.cause) else 0.0
    gains = (fix.worked(max(0.0, 1 - left)) for left in (plan.worst, plan.pace, plan.best))
    return Gain(*map(min, (known, share, high), gains))


def by_even_workers(fix: Proposed) -> Gain | None:
    """All of it, as far as workers that are equally busy are fast enough."""
    plan = plan_workers(fix.case, fix.cause)
    if plan is None or not plan.now:
        return None
    left = max(plan.own, plan.busy / plan.now)
    return fix.frees_exactly(1.0).within(left)


def by_no_workers(fix: Proposed) -> Gain | None:
    """Starting and handing over, as far as what workers prepare now leaves of that."""
    likely = freed_without_workers(fix.case, fix.cause)
    if likely is None:
        return None
    most = sum(fix.case.range_of(one)[1] for one in OF_WORKERS)
    return Gain(0.0, likely, max(likely, most))
