"""Evidence: numbers measured from a recording. ``docs/evidence.md`` lists every name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfdoctor.metrics.gpu import measure_gpus
from perfdoctor.metrics.names import Measured
from perfdoctor.metrics.readings import Readings
from perfdoctor.metrics.system import measure_system
from perfdoctor.metrics.threads import measure_threads

if TYPE_CHECKING:
    from perfdoctor.recording.reader import Recording
    from perfdoctor.timeline.threads import Threads


def measure(
    recording: Recording, threads: Threads, trainers: Sequence[tuple[int, Sequence[int]]]
) -> Measured:
    """Measures everything that rules may rest on, but for what the account and the steps tell.

    Args:
        recording: what was seen.
        threads: its threads.
        trainers: per trainer its process id, and those of its loader workers (ended ones included).

    Returns:
        What could be measured.
    """
    readings = Readings(recording)
    found = measure_threads(recording, threads, trainers)
    found.job.update(measure_system(readings, [pid for pid, _ in trainers]))
    found.job.update(measure_gpus(readings))
    return found
