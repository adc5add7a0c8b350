"""How trainers take batches from their loaders."""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import asks_for_shared_memory, awaits_message
from perfdoctor.recording.schema import LoaderSample
from perfdoctor.timeline.stacks import Stacks


def taken_by_file(stacks: Stacks) -> float | None:
    """Of the main threads' time in taking batches over the fraction that asks for the shared memory of tensors.

    By default a tensor is an open file, and each is asked for over a connection of its own; the rest is unpickling.
    Waiting for a batch that is not there yet belongs to neither. None where nothing is taken over.
    """
    total = by_file = 0.0
    for number, amount_ns in stacks.spent_ns().items():
        frames = stacks.frames[number]
        if stacks.locations[number].detail != "hand over" or awaits_message(frames):
            continue
        total += amount_ns
        by_file += amount_ns if asks_for_shared_memory(frames) else 0.0
    return by_file / total if total else None


def first_batches(samples: Sequence[LoaderSample]) -> float | None:
    """Of the time in loaders the fraction that goes to the first batch of an iterator, which nobody makes ahead.

    None where it was hardly ever seen how far an iterator was.
    """
    if len(samples) < thresholds.LOADER_SAMPLES:
        return None
    return sum(sample.given == 0 for sample in samples) / len(samples)
