"""A few steps under torch.profiler, after those that were observed: what the operators and the GPU did, exactly.

Profiling makes a step slower, so profiled steps are none of the observed ones. Only starting, stopping and writing the
trace happen in the training process. There is one profiler per process: if the script has one of its own, ours stays
away, and gives way if the script's begins while ours runs.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns as now
from typing import TYPE_CHECKING, Any

from perfdoctor.probes.inside.ring import RingWriter
from perfdoctor.recording.clock import NS_PER_S

if TYPE_CHECKING:
    from torch import profiler

# Where the user does not say how many steps: this many, fewer where they take long under the profiler, at least one.
# The training waits while the trace is written.
DEFAULT_STEPS, DEFAULT_S = 5, 1.0
TRACE = "trace.json"
_BUSY = "The script uses torch.profiler itself, so perfdoctor took no trace of its own."


class ProfilerRun:
    """One use of torch.profiler. Nothing here raises.

    Args:
        steps: how many steps to profile; None for ``DEFAULT_STEPS``, fewer where they are long; 0 for none.
        ring: takes where the trace is, or why there is none.
    """

    def __init__(self, steps: int | None, ring: RingWriter) -> None:
        self._wanted = steps
        self._ring = ring
        self._planned = self._left = 0
        self._until_ns = 0
        # When it began, how long a step takes without it, and how many there were with it.
        self._begun_ns = 0
        self._step_s = 0.0
        self._steps = 0
        self._profiler: profiler.profile | None = None
        self._folder: str | None = None
        self._starting = False
        self._another = False
        self._unwatch: Callable[[], None] = lambda: None

    def watch_for_others(self) -> None:
        """Notices from here on whether the script profiles."""
        from torch.autograd import profiler as autograd_profiler

        owner: Any = autograd_profiler.profile
        original = getattr(owner, "_prepare_trace", None)
        if self._wanted == 0 or original is None:
            return

        @functools.wraps(original)
        def _prepare_trace(one: Any) -> None:
            if not self._starting:
                self._another = True
                self._give_way()
            original(one)

        owner._prepare_trace = _prepare_trace

        def unwatch() -> None:
            if owner._prepare_trace is _prepare_trace:
                owner._prepare_trace = original

        self._unwatch = unwatch

    def begin(self, time_ns: int, step_s: float, step: int) -> bool:
        """Begins to profile.

        Args:
            time_ns: when the step before ended.
            step_s: how long a step takes.
            step: its number.

        Returns:
            Whether it did.
        """
        with self._harmless():
            if self._wanted != 0:
                self._begin(time_ns, step_s)
        return self._profiler is not None

    def step_ended(self, time_ns: int, step: int) -> bool:
        """Passes on to the next step; returns whether the last one was profiled, and the trace is written."""
        self._left -= 1
        self._steps += 1
        if time_ns > self._until_ns and self._left < self._planned:
            self._left = 0
        with self._harmless():
            if self._left > 0 and self._profiler is not None:
                self._profiler.step()
        if self._left <= 0:
            self.end()
        return self._profiler is None

    def end(self) -> None:
        """Stops, and says where the trace of what was profiled so far is; whoever reads it removes its folder."""
        running, self._profiler = self._profiler, None
        if running is None or self._folder is None:
            return
        with self._harmless():
            running.stop()
        spent_ns = now() - self._begun_ns
        held_ns = max(0, spent_ns - round(self._steps * self._step_s * NS_PER_S))
        file = Path(self._folder, TRACE)
        if file.exists():
            self._ring.say("trace", str(file), spent_ns, held_ns)

    def forget(self) -> None:
        """Takes back what ``watch_for_others`` did."""
        self._unwatch()

    def clear(self) -> None:
        """Removes the trace, if nobody has taken it."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self, time_ns: int, step_s: float) -> None:
        import torch
        from torch import profiler

        if self._another or torch._C._autograd._profiler_enabled():
            self._ring.note(_BUSY)
            return
        fitting = max(1, min(DEFAULT_STEPS, int(DEFAULT_S / max(step_s, 1e-6))))
        self._planned = fitting if self._wanted is None else self._wanted
        self._until_ns = time_ns + int(DEFAULT_S * NS_PER_S) if self._wanted is None else sys.maxsize
        # The first one is for the profiler to warm up, and is thrown away.
        self._left = 1 + self._planned
        self._folder = tempfile.mkdtemp(prefix="perfdoctor-trace-")
        self._begun_ns, self._step_s = time_ns, step_s
        file = str(Path(self._folder, TRACE))
        actions = profiler.ProfilerAction
        ours = profiler.profile(
            activities=profiler.supported_activities(),  # type: ignore[no-untyped-call]
            schedule=lambda step: actions.RECORD if step else actions.WARMUP,
            record_shapes=True,
            on_trace_ready=lambda done: done.export_chrome_trace(file),
        )
        self._starting = True
        try:
            ours.start()
        finally:
            self._starting = False
        self._profiler = ours

    def _give_way(self) -> None:
        running, self._profiler = self._profiler, None
        if running is None:
            return
        self._ring.note(_BUSY)
        with self._harmless():
            running.on_trace_ready = None
            running.stop()

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """No fault of a profiler may end the training."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._profiler = None
            self._ring.note(f"torch.profiler failed: {type(error).__name__}: {error}"[:300])
