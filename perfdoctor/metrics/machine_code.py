"""What machine code the trainers' main threads ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perfdoctor.recording.schema import CodeSample, Symbol
from perfdoctor.timeline.job import JobTimeline


def code_of_trainers(job: JobTimeline) -> Iterator[tuple[str, str, int]]:
    """Image, symbol, and how often it was seen."""
    mains = [job.threads.main(trainer.pid) for trainer in job.processes.trainers]
    tids = {main.tid for main in mains if main is not None}
    named = {(row.image, row.offset): row.symbol for row in job.recording.rows(Symbol)}
    columns = job.recording.columns(CodeSample, "tid", "image", "offset", "symbol")
    for (tid, image, offset, symbol), count in Counter(zip(*columns, strict=True)).items():
        if tid in tids:
            yield image, symbol or named.get((image, offset), ""), count
