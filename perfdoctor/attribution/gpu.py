"""Jobs with a GPU: what a busy GPU hides from the host is no cost, and only when it idles is the host to blame.

Not yet verified on a device: the machines that this was written on have none. NVML's own window (1/6 to 1 s) is longer
than most steps, so the busy fraction around an instant is used as the weight of the GPU at that instant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from perfdoctor.attribution.share import Share, Shares, scaled
from perfdoctor.causes import KERNEL_LAUNCH, MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.metrics.gpu import gpu_cause, job_gpus, measure_gpus
from perfdoctor.recording.reader import Recording
from perfdoctor.timeline.readings import Counter, Readings

# Host work in a step, while the GPU waits for it, is launching.
_LAUNCHING = {MODEL_COMPUTE: KERNEL_LAUNCH, PYTHON_OVERHEAD: KERNEL_LAUNCH}


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a job over time.

    Attributes:
        busy: mean busy fraction of the job's GPUs.
        cause: what they are busy with, a ``gpu.*`` cause.
    """

    busy: Counter
    cause: str

    def share_out(self, shares: Iterable[Share], time_ns: int) -> Shares:
        """Splits an instant between the GPU and the host's own account of it."""
        busy = min(1.0, max(0.0, float(np.interp(time_ns, self.busy.times_ns, self.busy.values))))
        host = [replace(share, cause=_LAUNCHING.get(share.cause, share.cause)) for share in scaled(shares, 1 - busy)]
        return [Share(self.cause, busy), *(share for share in host if share.weight > 0)]


def read_gpus(recording: Recording) -> Gpus | None:
    """The GPUs that the job uses; None if it uses none, or if they could not be looked at."""
    readings = Readings(recording)
    used = job_gpus(readings)
    cause = gpu_cause(measure_gpus(readings)) if used else None
    if cause is None:
        return None
    at: dict[int, list[float]] = {}
    for gpu in used:
        for time_ns, busy in zip(*recording.series.get((gpu, "busy_fraction"), ((), ())), strict=True):
            at.setdefault(time_ns, []).append(busy)
    if len(at) < 2:
        return None
    times = sorted(at)
    return Gpus(Counter(np.array(times, dtype=np.float64), np.array([fmean(at[time]) for time in times])), cause)
