"""How trainers take batches over from loader workers."""

from __future__ import annotations

from perfdoctor.knowledge.frames import asks_for_shared_memory, awaits_message
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
