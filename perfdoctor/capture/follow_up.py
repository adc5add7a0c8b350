"""What a training process tells after its last observed step, a trial or a trace for instance: awaited and recorded."""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.probes.inside.ring import DETACHED, RingReader
from perfdoctor.probes.marks import marks_of
from perfdoctor.probes.readers.procfs import is_running
from perfdoctor.recording.clock import epoch_on_the_clock
from perfdoctor.recording.schema import Profile, Sample, SerialMark, TrialSeen, Unavailable

# Profiled steps are several times slower than others, and what a large model did takes a while to write.
PATIENCE_S = 60.0
_LOOK_S = 0.05
# A trace of a few steps has some MB. Reading one of this size would take the report minutes.
MAX_BYTES = 2_000_000_000


def take_rest(ring: RingReader) -> Iterator[Sample]:
    """Waits until a training process has detached, and takes what it left.

    Args:
        ring: of that process.

    Yields:
        Its trial, its serialised steps and its trace, if there are such, and why something is left out.
    """
    until = time.monotonic() + PATIENCE_S
    while ring.trainer != DETACHED and time.monotonic() < until and is_running(ring.pid):
        time.sleep(_LOOK_S)
    # Other marks of that time are of no use.
    yield from (mark for mark in marks_of(ring) if isinstance(mark, SerialMark))
    for words in ring.texts():
        if words[0] == "trial":
            yield TrialSeen(ring.pid, int(words[1]), int(words[2]))
        elif words[0] == "trace":
            yield from _trace(ring.pid, Path(str(words[1])))
        elif words[0] == "note":
            yield Unavailable("marks", str(words[1]), str(words[2]))


def _trace(pid: int, file: Path) -> Iterator[Sample]:
    try:
        if file.stat().st_size > MAX_BYTES:
            yield Unavailable("profile", "The trace of torch.profiler is larger than 2 GB.", "profile=1")
        else:
            # Level 1 packs a trace nearly as well as level 9, in a tenth of the time.
            yield Profile(pid, *epoch_on_the_clock(), gzip.compress(file.read_bytes(), 1))
        shutil.rmtree(file.parent, ignore_errors=True)
    except OSError as error:
        yield Unavailable("profile", f"The trace of torch.profiler cannot be read: {error.strerror}.", "")
