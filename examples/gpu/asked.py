"""What a session asks of a job: by its environment when it begins, and by files that appear while it runs."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEVICE = "PERFDOCTOR_EXAMPLE_DEVICE"
"""Environment variable: the device to train on; ``cpu`` tries a job without a GPU, in a tiny size."""
SPEED = "PERFDOCTOR_EXAMPLE_SPEED"
"""Environment variable: teraflops to size the job for, so that several runs have the same size."""
LOOKS = "PERFDOCTOR_EXAMPLE_LOOKS"
"""Environment variable: a folder in which a file ``trace`` or ``inside`` asks the job to be looked at that way."""


class RequestedTrace:
    """Traces some steps, once, when a file ``trace`` is in a folder: to ``rank0.json.gz`` there.

    Args:
        folder: where.
        rank: the process's.
        steps: how many are traced at least and at most.
        seconds: as many of these as are as long together.
        begins: called before the profiler starts.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        steps: tuple[int, int],
        seconds: float,
        begins: Callable[[], object] = lambda: None,
    ) -> None:
        self._asked, self._new = folder / "trace", folder / f"new{rank}.json.gz"
        self._done = folder / f"rank{rank}.json.gz"
        self._steps, self._seconds, self._begins = steps, seconds, begins
        self._profiler: Any = None
        self._left = 0
        self._last = time.monotonic()

    def step_ended(self) -> None:
        """To be called after each step."""
        now = time.monotonic()
        length, self._last = now - self._last, now
        if self._profiler is not None:
            self._profiler.step()
            self._left -= 1
            if self._left == 0:
                self._finish()
        elif self._asked.exists() and not self._done.exists():
            self._begin(length)

    def _begin(self, step_s: float) -> None:
        import torch

        self._begins()
        least, most = self._steps
        active = max(least, min(most, int(self._seconds / max(step_s, 1e-4))))
        self._left = 2 + active
        self._profiler = torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=1, warmup=1, active=active, repeat=1),
            on_trace_ready=lambda done: done.export_chrome_trace(str(self._new)),
        )
        self._profiler.start()

    def _finish(self) -> None:
        self._profiler.stop()
        self._profiler = None
        self._new.rename(self._done)
