"""Blocks of what was watched or traced, as reports keep them: seconds, steps and causes, stretch by stretch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import BLOCK_NS
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.results.blocks import Block, in_batches
from perfdoctor.timeline.amounts import summed_by_block
from perfdoctor.timeline.job import JobTimeline

Floats = npt.NDArray[np.float64]

# A block all of which lies in steps, in seconds.
_WHOLE = (1 - 1e-6) * BLOCK_NS / NS_PER_S
# As many tell how much a job varies, and a report keeps them in some kB.
KEPT = 60


def recorded_blocks(
    job: JobTimeline, accounts: Sequence[Account], *, traced: bool, traced_ns: Sequence[int] = ()
) -> tuple[Block, ...]:
    """The seconds of a recording, with the first trainer's steps in them: marked, counted from outside, or traced.

    Args:
        job: what was watched.
        accounts: of its trainers.
        traced: whether the accounts are those of traces of other steps than the marked ones; then these and the
            causes are in blocks of their own.
        traced_ns: how long the first trainer's traced steps took; they stand where no others are known.
    """
    causes, pid = _causes(accounts), accounts[0].trainer.pid if accounts else 0
    steps = job.timed_steps(pid)
    if steps is None:
        return (*_kept(_of_lengths(traced_ns)), *_kept(_without_steps(causes)))
    first, last = ((time - job.span[0]) // BLOCK_NS for time in (steps.all[0].start_ns, steps.all[-1].end_ns))
    edges = job.span[0] + BLOCK_NS * np.arange(first, last + 2, dtype=np.float64)
    spent = steps.observed_s(edges)
    if not job.gpus.used_by(pid):
        spent = spent + steps.evaluated_s(edges)  # as the account has them
    counts = count_steps([(step.from_ns, step.end_ns) for step in steps.all], edges)
    by_second = zip(range(first, last + 1), spent.tolist(), counts.tolist(), strict=True)
    if pid in job.steps:
        held = [(number, seconds, count) for number, seconds, count in by_second if seconds > 0]
    else:  # the account is of all of the time, and must not stand for a part of a second
        held = [(number, seconds, count) for number, seconds, count in by_second if seconds >= _WHOLE]
    blocks = [Block(seconds, count, {} if traced else causes.get(number, {})) for number, seconds, count in held]
    return (*_kept(blocks), *_kept(_without_steps(causes) if traced else ()))


def traced_blocks(lengths_ns: Sequence[int], accounts: Sequence[Account]) -> tuple[Block, ...]:
    """The steps of a trace, and the slices of its time with their causes.

    Args:
        lengths_ns: of the steps of the first rank.
        accounts: of the ranks.
    """
    return (*_kept(_of_lengths(lengths_ns)), *_kept(_without_steps(_causes(accounts))))


def count_steps(steps: Sequence[tuple[int, int]], edges: Floats) -> Floats:
    """How many steps lie between each two neighbouring instants, parts of steps as fractions.

    Args:
        steps: begin and end of each, in order.
        edges: the instants, in the same unit.
    """
    borders = np.maximum.accumulate(np.array(steps, dtype=np.float64).ravel())  # those that overlap a little
    done = np.repeat(np.arange(len(steps) + 1), 2)[1:-1]
    return np.asarray(np.diff(np.interp(edges, borders, done)), dtype=np.float64)


def _causes(accounts: Sequence[Account]) -> dict[int, Mapping[str, float]]:
    """By number of the block, seconds by cause, the mean over the trainers."""
    return {
        number: {cause: seconds / len(accounts) for cause, seconds in together.items() if seconds > 0}
        for number, together in summed_by_block(account.by_block() for account in accounts).items()
        if together.total > 0
    }


def _of_lengths(lengths_ns: Sequence[int]) -> list[Block]:
    return [Block(length / NS_PER_S, 1.0) for length in lengths_ns]


def _without_steps(causes: Mapping[int, Mapping[str, float]]) -> list[Block]:
    return [Block(sum(one.values()), None, one) for one in causes.values()]


def _kept(blocks: Sequence[Block]) -> tuple[Block, ...]:
    return tuple(in_batches(blocks, KEPT))
