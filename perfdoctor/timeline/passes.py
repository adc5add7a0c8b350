"""What the job's own loop prepares once for a whole pass over the data, and not for each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.own_source import SourceOnce, lines_of
from perfdoctor.timeline.code_location import PREPARES, CodeLocation, place_of


def with_passes(
    stacks: Sequence[tuple[Frame, ...]],
    locations: Sequence[CodeLocation],
    main_threads: Iterable[Mapping[int, float]],
    once: Iterable[SourceOnce],
) -> list[CodeLocation]:
    """Marks what is prepared beside a loop in which the optimizer steps, once for all of its rounds.

    Args:
        stacks: the distinct stacks, outermost call first.
        locations: of each.
        main_threads: per main thread, how long it was seen in each stack, by the stack's index.
        once: in the job's own source.
    """
    seen = {number for amounts in main_threads for number in amounts}
    updates = {
        (frame.file, frame.line)
        for number in seen
        if locations[number].phase == "optimizer"
        for frame in stacks[number]
    }
    around_steps = lines_of(
        row
        for row in once
        if any(file == row.file and row.loop_line <= line <= row.loop_last_line for file, line in updates)
    )
    found = list(locations)
    for number, location in enumerate(found):
        shared = (frame for frame in stacks[number] if (frame.file, frame.line) in around_steps)
        if location.detail == PREPARES and (frame := next(shared, None)):
            found[number] = replace(location, per_pass=place_of(frame))
    return found
