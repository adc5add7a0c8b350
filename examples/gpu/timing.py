"""Checks perfdoctor's timer on a device against events by hand: each phase by itself, and in ordinary steps.

    python timing.py [--json FILE]

The same model, data and steps are timed in both ways in one process. ``session.py`` runs this first.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerator
import models
import torch
from torch import nn

PHASES = ("forward", "loss", "backward", "optimizer")
STEPS, WARM_UP = 40, 10
# Ways differ in what the host does at a border: a few launches, and the waking after a wait.
RELATIVE, ABSOLUTE_S = 0.10, 0.0003
_WAIT_S = 120.0


class Job:
    """A small network that trains on data which lies on the device."""

    def __init__(self) -> None:
        self.model = models.Transformer(256, 4).to(accelerator.device())
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batches = models.series(accelerator.sized(256), 128, accelerator.device())

    def step(self, border: Callable[[], object] = lambda: None) -> None:
        """One step; ``border`` is called before each of ``PHASES`` and after the last."""
        series, labels = next(self.batches)
        self.optimizer.zero_grad()
        border()
        out = self.model(series)
        border()
        loss = self.criterion(out, labels)
        border()
        loss.backward()
        border()
        self.optimizer.step()
        border()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    job = Job()
    if accelerator.on_cpu():
        job.step()
        print("timer: no device here, so there is nothing to time by hand")
        return 0
    rows = compare(job)
    for row in rows:
        print(f"timer: {row['what']:24} {text(row['perfdoctor'])} by perfdoctor, {text(row['by_hand'])} by hand")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0 if all(row["agrees"] for row in rows) else 1


def text(seconds: float | None) -> str:
    return "   not known" if seconds is None else f"{seconds * 1000:9.3f} ms"


def compare(job: Job) -> list[dict[str, Any]]:
    """One row for each phase in each way."""
    for _ in range(WARM_UP):
        job.step()
    apart, freely = by_hand(job, apart=True), by_hand(job, apart=False)
    told = by_perfdoctor(job)
    alone = told.get("serialised", {}).get("phases", {})
    device = told.get("device", {}).get("phases", {})
    rows = []
    for number, phase in enumerate(PHASES):
        rows.append(row(f"{phase} by itself", alone.get(phase, {}).get("median_s"), apart[number]))
        rows.append(row(f"{phase} on the device", device.get(phase), freely[number]))
    total = sum(alone[phase]["median_s"] for phase in PHASES if phase in alone) if alone else None
    return [*rows, row("all by themselves", total, sum(apart))]


def row(what: str, ours: float | None, theirs: float) -> dict[str, Any]:
    agrees = ours is not None and abs(ours - theirs) <= max(RELATIVE * theirs, ABSOLUTE_S)
    return {"what": what, "perfdoctor": ours, "by_hand": theirs, "agrees": agrees}


def by_hand(job: Job, *, apart: bool) -> list[float]:
    """Median seconds of each phase by events of torch's.

    Args:
        job: what trains.
        apart: wait for the device at each border.
    """
    taken = []
    for _ in range(STEPS):
        events: list[Any] = []

        def border(events: list[Any] = events) -> None:
            if apart:
                accelerator.synchronize()
            event = torch.Event(enable_timing=True)
            event.record()
            events.append(event)
            if apart:
                accelerator.synchronize()

        job.step(border)
        accelerator.synchronize()
        taken.append([one.elapsed_time(other) / 1000 for one, other in itertools.pairwise(events)])
    return [statistics.median(times) for times in zip(*taken, strict=True)]


def by_perfdoctor(job: Job) -> dict[str, Any]:
    """The steps that ``diagnose()`` tells of."""
    from perfdoctor import diagnose

    with tempfile.TemporaryDirectory() as folder:
        file, until = Path(folder, "told.json"), time.monotonic() + _WAIT_S
        watched = diagnose(steps=STEPS, report=None, json=file, profile=0)
        while watched.diagnosis is None and time.monotonic() < until:
            with watched:
                job.step()
    return dict((watched.diagnosis or {}).get("steps", {}))


if __name__ == "__main__":
    sys.exit(main())
