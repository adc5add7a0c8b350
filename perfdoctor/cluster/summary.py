"""One file to what remains of it: a function of its address, which runs in any process, on any machine."""

from __future__ import annotations

from pathlib import Path

from perfdoctor.cluster.condensing import condense, condense_host
from perfdoctor.cluster.files import File
from perfdoctor.recording.collector import collector_paused
from perfdoctor.recording.remote import at_hand


def summarise(file: File) -> bytes:
    """What remains of a trace or of a recording: at most 10 KB for each rank in it.

    Returns:
        What ``perfdoctor.cluster.packing.unpack`` makes a ``Rank`` or a ``Host`` of.

    Raises:
        PerfDoctorError: it cannot be read, or holds no trace or recording.
    """
    with at_hand(file.address) as path:
        return _of_trace(path) if file.kind == "trace" else _of_recording(path)


def _of_trace(path: Path) -> bytes:
    from perfdoctor.traces.rank import summarize
    from perfdoctor.traces.reader import read_trace

    with collector_paused():
        return condense(summarize(read_trace(path)))


def _of_recording(path: Path) -> bytes:
    from perfdoctor.analysis.from_one_host import summarise_recording
    from perfdoctor.recording.reader import Recording

    with Recording.open(path) as recording:
        return condense_host(summarise_recording(recording))
