"""Evidence: numbers measured from a recording. ``docs/evidence.md`` lists every name.

A number that could not be measured is absent; it is never zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfdoctor.diagnosis import Evidence
from perfdoctor.metrics.gpu import gpu_cause, measure_gpus
from perfdoctor.metrics.readings import Readings
from perfdoctor.metrics.system import measure_system
from perfdoctor.metrics.threads import measure_threads

if TYPE_CHECKING:
    from perfdoctor.recording.reader import Recording
    from perfdoctor.timeline.threads import Threads


def measure(
    recording: Recording, threads: Threads, trainers: Sequence[tuple[int, Sequence[int]]]
) -> dict[str, Evidence]:
    """Measures everything that rules may rest on.

    Args:
        recording: what was seen.
        threads: its threads.
        trainers: per trainer its process id, and those of its loader workers (ended ones included).

    Returns:
        Numbers by name. Fractions are 0 to 1.
    """
    readings = Readings(recording)
    return {
        **measure_threads(recording, threads, trainers),
        **measure_system(readings, [pid for pid, _ in trainers]),
        **measure_gpus(readings),
    }


__all__ = ["gpu_cause", "measure"]
