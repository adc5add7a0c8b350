"""In which precision the arithmetic is on the CPU, by the names of sampled kernels."""

from __future__ import annotations

from collections import Counter

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.symbols import bits
from perfdoctor.recording.schema import CodeSample, Symbol
from perfdoctor.timeline.job import JobTimeline


def part_in_double(job: JobTimeline) -> float | None:
    """Of the trainers' arithmetic of known precision, the fraction in double; None where too little was seen."""
    mains = [job.threads.main(trainer.pid) for trainer in job.processes.trainers]
    tids = {main.tid for main in mains if main is not None}
    named = {(row.image, row.offset): row.symbol for row in job.recording.rows(Symbol)}
    seen: Counter[int | None] = Counter()
    columns = job.recording.columns(CodeSample, "tid", "image", "offset", "symbol")
    for (tid, image, offset, symbol), count in Counter(zip(*columns, strict=True)).items():
        if tid in tids:
            seen[bits(image, symbol or named.get((image, offset), ""))] += count
    known = seen[32] + seen[64]
    return seen[64] / known if known >= thresholds.SEEN_STACKS else None
