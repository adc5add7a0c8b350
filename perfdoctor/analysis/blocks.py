"""Blocks of what was watched or traced, as reports keep them: seconds, steps and causes, stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import BLOCK_NS
from perfdoctor.blocks import Block, in_batches
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline

Floats = npt.NDArray[np.float64]

# As many tell how much a job varies, and a report keeps them in some kB.
KEPT = 60


def recorded_blocks(job: JobTimeline, accounts: Sequence[Account], *, traced: bool) -> tuple[Block, ...]:
    """The seconds of a recording, with the steps that the first trainer marked in them.

    Args:
        job: what was watched.
        accounts: of its trainers.
        traced: whether the accounts are those of traces of other steps than the marked ones; then these and the
            causes are in blocks of their own.
    """
    marked = accounts[0].trainer.pid if accounts else None
    steps = job.steps.get(marked) if marked is not None else None
    causes = _causes(accounts)
    if steps is None or not steps.all:
        return _kept([Block(sum(one.values()), None, one) for one in causes.values()])
    first, last = ((time - job.span[0]) // BLOCK_NS for time in (steps.all[0].start_ns, steps.all[-1].end_ns))
    edges = job.span[0] + BLOCK_NS * np.arange(first, last + 2, dtype=np.float64)
    spent = steps.observed_s(edges)
    if not job.gpus.used_by(marked):
        spent = spent + steps.evaluated_s(edges)  # as the account has them
    counts = count_steps([(step.from_ns, step.end_ns) for step in steps.all], edges)
    by_second = zip(range(first, last + 1), spent.tolist(), counts.tolist(), strict=True)
    blocks = [Block(*block, {} if traced else causes.get(number, {})) for number, *block in by_second if block[1] > 0]
    own = [Block(sum(one.values()), None, one) for one in causes.values()] if traced else []
    return (*_kept(blocks), *_kept(own))


def traced_blocks(steps: Sequence[tuple[int, int]], edges: Floats, accounts: Sequence[Account]) -> tuple[Block, ...]:
    """The slices of a trace's window, with the profiler's steps in them.

    Args:
        steps: start and end of each, in ns.
        edges: borders of the slices, in ns.
        accounts: of the ranks.
    """
    causes = _causes(accounts)
    counts = count_steps(steps, edges).tolist() if steps else [None] * (len(edges) - 1)
    blocks = zip((np.diff(edges) / NS_PER_S).tolist(), counts, strict=True)
    return tuple(Block(*block, causes.get(number, {})) for number, block in enumerate(blocks))


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
    numbers = sorted(set().union(*(account.block_numbers for account in accounts)))
    found: dict[int, Mapping[str, float]] = {}
    for number in numbers:
        together = Amounts.summed(account.block(number) for account in accounts)
        if together.total > 0:
            found[number] = {cause: seconds / len(accounts) for cause, seconds in together.items() if seconds > 0}
    return found


def _kept(blocks: Iterable[Block]) -> tuple[Block, ...]:
    return tuple(in_batches(list(blocks), KEPT))
