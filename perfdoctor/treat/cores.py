"""Which cores a job may use, and how they are shared between trainers and their loader workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def own_cores(root: Path = Path("/")) -> tuple[int, ...]:
    """The cores on which what this process starts may run; those of one package together, and threads of one core.

    Args:
        root: where /sys is.
    """
    return tuple(sorted(os.sched_getaffinity(0), key=lambda core: (*_place(core, root), core)))


def _place(core: int, root: Path) -> tuple[int, int]:
    """Package and number of a core, which the threads of one core share; its own number where nothing is said."""
    topology = root / f"sys/devices/system/cpu/cpu{core}/topology"
    with suppress(OSError, ValueError):
        return int((topology / "physical_package_id").read_text()), int((topology / "core_id").read_text())
    return 0, core


def shared_out(cores: Sequence[int], trainers: int, workers: int) -> list[tuple[list[int], list[int]]]:
    """Cores of each trainer and of its loader workers.

    Each worker has one, as far as there is one left for the trainer.

    Args:
        cores: all that there are, neighbours together.
        trainers: how many share them.
        workers: how many each of them has.
    """
    each = len(cores) // trainers
    own = max(1, each - workers)
    parts = [cores[number * each : (number + 1) * each] for number in range(trainers)]
    return [(list(part[:own]), list(part[own:])) for part in parts]
