"""Runs of a job that never ran, as JSON reports tell of them: steps of a planted pace, and what they are made of."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfdoctor.causes import INPUT_PREPROCESSING, MODEL_COMPUTE
from perfdoctor.compare.compare import compare
from perfdoctor.compare.side import Side, read_side
from perfdoctor.results.comparison import Comparison

SETTINGS = {"workers": 2.0, "cores": 8.0, "cpu_model": "AMD EPYC", "trainer_threads": 9.0, "env.OMP_NUM_THREADS": "4"}
# What steps are made of, as fractions of them.
PARTS = {INPUT_PREPROCESSING: 0.4, MODEL_COMPUTE: 0.6}


def step_times(
    seed: int, step_s: float, *, watched_s: float = 15.0, noise: float = 0.05, memory: float = 0.7, stalls: float = 0.0
) -> list[float]:
    """Steps whose logarithms wander about a mean, and now and then one that takes several times as long.

    Args:
        seed: of chance.
        step_s: the mean.
        watched_s: how long all of them take.
        noise: standard deviation of a step's logarithm.
        memory: correlation of a step with the next.
        stalls: fraction of the steps that take longer by some, exponentially distributed.
    """
    chance = random.Random(seed)
    wandering, left_s, times = chance.gauss(0, noise), watched_s, []
    while left_s > 0:
        wandering = memory * wandering + chance.gauss(0, noise * math.sqrt(1 - memory**2))
        stall = chance.expovariate(1 / 3) if chance.random() < stalls else 0.0
        times.append(step_s * (math.exp(wandering) + stall))
        left_s -= times[-1]
    return times


def blocks(times: Sequence[float], parts: Mapping[str, float] = PARTS) -> list[dict[str, Any]]:
    """Blocks of a second, as a report has them."""
    return [
        {"seconds": spent, "steps": steps, "causes": {cause: part * spent for cause, part in parts.items()}}
        for spent, steps in _seconds(times)
    ]


def _seconds(times: Sequence[float]) -> Iterator[tuple[float, float]]:
    spent = steps = 0.0
    for time in times:
        left = time
        while left > 0:
            part = min(left, 1 - spent)
            spent, steps, left = spent + part, steps + part / time, left - part
            if spent > 1 - 1e-9:
                yield spent, steps
                spent = steps = 0.0
    if spent > 0.1:
        yield spent, steps


def report(times: Sequence[float] = (), *, parts: Mapping[str, float] = PARTS, **more: Any) -> dict[str, Any]:
    """A JSON report of a run, marked from inside; ``more`` replaces its members, and of ``job`` those that it has."""
    cause = max(parts, key=lambda name: parts[name])
    job = {"command": "python train.py", "host": "box", "world_size": 1, "watched_seconds": sum(times)}
    made = {
        "schema": 1,
        "perfdoctor": "0.1.0",
        "verdict": {
            "bottleneck": "cpu",
            "cause": cause,
            "share": parts[cause],
            "level": "measured inside",
            "summary": f"Most of the time goes into {cause}.",
        },
        "breakdown": [{"cause": name, "share": part} for name, part in parts.items()],
        "findings": [],
        "ranks": [],
        "steps": {"count": len(times), "mean_s": sum(times) / len(times)} if times else {},
        "not_examined": [],
        "overhead": {},
        "blocks": blocks(times, parts),
        **more,
    }
    return {**made, "job": {**job, "settings": SETTINGS, **more.get("job", {})}}


def finding(speedup: float | None, least: float = 1.0, most: float = 9.0, **more: Any) -> dict[str, Any]:
    """A finding with one fix that promises something; ``more`` is of the fix."""
    fix = {
        "title": "More loader workers",
        "why": "",
        "change": "",
        "predicted_speedup": speedup,
        "speedup_range": [least, most],
        **more,
    }
    return {"cause": INPUT_PREPROCESSING, "fixes": [fix]}


def side(document: Mapping[str, Any], source: str = "run.json") -> Side:
    """A report as one side of a comparison."""
    return read_side(source, "report", document)


def compared(before: Mapping[str, Any], after: Mapping[str, Any], limit: float | None = None) -> Comparison:
    """Two reports, compared."""
    return compare(side(before, "before.json"), side(after, "after.json"), limit)
