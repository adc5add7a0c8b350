"""Ranks by the thousand, as they are left of their traces: made at once, without any trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from perfdoctor.causes import GPU_COMPUTE, INPUT_PREPROCESSING, UNOBSERVED_RANK
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.account import SLICES
from perfdoctor.traces.collectives import COLUMNS, Collectives
from perfdoctor.traces.communication import SPLIT
from perfdoctor.traces.rank import Rank
from perfdoctor.traces.steps import TraceWindow

PER_HOST = 8
STEPS = 10
WORK_NS, TRANSFER_NS = 9_000_000, 1_000_000
_SPREAD_NS = 50_000.0

Late = Callable[[int, int], float]
"""Nanoseconds by which a rank (of a number) fetches longer than the others, in a step (of a number)."""


def nobody(rank: int, step: int) -> float:
    return 0.0


def always(rank: int, by_ns: float = 4e6) -> Late:
    """One rank is late in every step."""
    return partial(_when, lambda one, _: one == rank, by_ns)


def host(number: int, by_ns: float = 4e6) -> Late:
    """All ranks of a host are late."""
    return partial(_when, lambda one, _: one // PER_HOST == number, by_ns)


def position(number: int, by_ns: float = 4e6) -> Late:
    """On every host the rank at one place is late."""
    return partial(_when, lambda one, _: one % PER_HOST == number, by_ns)


def wandering(count: int, by_ns: float = 4e6) -> Late:
    """A different rank in each step."""
    return partial(_when, lambda one, step: one == (7 * step + 3) % count, by_ns)


def _when(holds: Callable[[int, int], bool], by_ns: float, rank: int, step: int) -> float:
    return by_ns if holds(rank, step) else 0.0


def make_ranks(count: int, late: Late = nobody, *, seed: int = 1) -> list[Rank]:
    """Ranks that fetch a batch, compute, meet on their host, compute, and all meet, step by step."""
    random = np.random.default_rng(seed)
    now = np.zeros(count)
    hosts = np.arange(count) // PER_HOST
    spent = {INPUT_PREPROCESSING: np.zeros(count), GPU_COMPUTE: np.zeros(count), UNOBSERVED_RANK: np.zeros(count)}
    rows: list[tuple[str, int, list[np.ndarray]]] = []

    def work(cause: str, length: np.ndarray) -> None:
        nonlocal now
        spent[cause] = spent[cause] + length
        now = now + length

    def meet(kind: str, step: int, end: np.ndarray) -> None:
        nonlocal now
        start, before = now, [spent[cause] for cause in spent]
        work(UNOBSERVED_RANK, end - now)
        rows.append((kind, step, [start, now, *before, *(spent[cause] for cause in spent)]))

    for step in range(STEPS):
        work(INPUT_PREPROCESSING, np.array([late(rank, step) for rank in range(count)]))
        work(GPU_COMPUTE, WORK_NS / 2 + random.exponential(_SPREAD_NS, count))
        meet("host", step, np.array([now[hosts == one].max() for one in range(hosts[-1] + 1)])[hosts] + TRANSFER_NS)
        work(GPU_COMPUTE, WORK_NS / 2 + random.exponential(_SPREAD_NS, count))
        meet("world", step, np.full(count, now.max() + TRANSFER_NS))
    skew = random.normal(0.0, 1e6, hosts[-1] + 1)[hosts]
    return [_rank(index, count, rows, list(spent), float(skew[index])) for index in range(count)]


def _rank(
    index: int, count: int, rows: Sequence[tuple[str, int, list[np.ndarray]]], causes: Sequence[str], skew: float
) -> Rank:
    start, end = (np.array([row[place][index] + skew for _, _, row in rows]).astype(np.int64) for place in (0, 1))
    columns = [COLUMNS.index(cause) for cause in causes]
    before, after = np.zeros((len(rows), len(COLUMNS))), np.zeros((len(rows), len(COLUMNS)))
    for place, column in enumerate(columns):
        before[:, column] = [row[2 + place][index] for _, _, row in rows]
        after[:, column] = [row[2 + len(causes) + place][index] for _, _, row in rows]
    split = np.zeros((len(rows), len(SPLIT)))
    split[:, SPLIT.index(UNOBSERVED_RANK)] = end - start
    kinds = tuple((kind, str(index // PER_HOST) if kind == "host" else "0", "") for kind, _, _ in rows)
    moments = np.stack((start, end), axis=1).ravel().astype(np.float64)
    alone = np.concatenate([[0.0], np.cumsum(np.diff(moments) * (np.arange(len(moments) - 1) % 2 == 0))])
    last = int(end[-1])
    total = {cause: float(after[-1, column]) for cause, column in zip(causes, columns, strict=True)}
    return Rank(
        source=f"rank{index}.json.gz",
        number=index,
        world=count,
        host_name=f"node{index // PER_HOST:04d}",
        pid=1000 + index,
        events=5000,
        window=TraceWindow(
            round(skew), last, tuple((int(start[2 * one]), int(end[2 * one + 1])) for one in range(STEPS))
        ),
        slices=[Amounts({cause: amount / SLICES for cause, amount in total.items()}) for _ in range(SLICES)],
        origin_ns=0,
        devices=("0: NVIDIA H100",),
        numbers={"traced_busy": 0.9},
        content=str(index),
        collectives=Collectives(
            keys=tuple(((("step", kind, step, 1), 0)) for kind, (_, step, _) in zip(kinds, rows, strict=True)),
            kinds=kinds,
            group_size=np.array([PER_HOST if kind == "host" else count for kind, _, _ in rows], dtype=np.int64),
            start=start,
            end=end,
            size=np.full(len(rows), 1e8),
            split=split,
            alone=(moments, alone),
            blocking=np.ones(len(rows), dtype=np.bool_),
            before=before,
            after=after,
        ),
    )
