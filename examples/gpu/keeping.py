"""What a session leaves behind: a small fixture for each example, that tests replay without a GPU."""

import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import comparing

FIXTURES = Path("tests", "fixtures", "gpu")
MAX_TRACE = 1 << 20
# Of a trace: what perfdoctor reads, so neither the host's name nor anything of the script.
_ROOT = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", "schemaVersion")


def keep(told: dict[str, Any], work: Path, into: Path) -> Path:
    """Writes one example's fixture.

    Args:
        told: what ``looking.look`` found.
        work: the folder in which the tools wrote.
        into: the root of what the session writes.

    Returns:
        The fixture's folder.
    """
    folder = into / FIXTURES / told["example"]
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    traces = sorted(work.glob("rank*.json.gz"))
    kept = [trim(trace, folder / trace.name) for trace in traces]
    if kept:
        told["analyze_kept"] = _verdict([file for file in kept if file is not None]) if all(kept) else None
    (folder / "readings.json").write_text(json.dumps(gpu_rows(work / comparing.RECORDING)))
    gpu, _ = comparing.means_of(work / comparing.RECORDING)
    samples = [] if gpu is None else comparing.smi_samples(work / comparing.SMI, gpu)
    (folder / "nvidia-smi.json").write_text(json.dumps(samples))
    (folder / "result.json").write_text(json.dumps(told, indent=1))
    return folder


def trim(trace: Path, to: Path) -> Path | None:
    """Copies of a trace what perfdoctor reads of it, but for stacks; None if that is too large to keep."""
    from perfdoctor.traces.events import EventArguments

    whole = json.loads(gzip.decompress(trace.read_bytes()))
    # Stacks name the folders of whoever ran the session.
    known = {field.encode_name for field in msgspec.structs.fields(EventArguments)} - {"Call stack"}
    events = [_trimmed(event, known) for event in whole["traceEvents"] if event.get("ph") in ("X", "B", "E", "M")]
    root = {name: whole[name] for name in _ROOT if name in whole}
    text = json.dumps({**root, "traceEvents": events}, separators=(",", ":")).encode()
    packed = gzip.compress(text, 9, mtime=0)
    if len(packed) > MAX_TRACE:
        return None
    to.write_bytes(packed)
    return to


def _trimmed(event: dict[str, Any], known: set[str]) -> dict[str, Any]:
    fields = {name: event[name] for name in ("ph", "cat", "name", "ts", "dur", "pid", "tid") if name in event}
    if event.get("ph") == "M":
        return {**fields, "args": event.get("args", {})}
    arguments = {name: value for name, value in event.get("args", {}).items() if name in known}
    return {**fields, "args": arguments} if arguments else fields


def _verdict(traces: list[Path]) -> dict[str, Any]:
    """What perfdoctor says of the traces that were kept."""
    from perfdoctor.analysis.from_traces import diagnose_traces
    from perfdoctor.cluster.files import find_traces
    from perfdoctor.traces.reader import read_trace

    diagnosis = diagnose_traces(read_trace(path) for path in find_traces(traces))
    return {"cause": diagnosis.verdict.cause, "share": diagnosis.verdict.share}


def gpu_rows(recording: Path) -> dict[str, Any]:
    """What the GPU probe put into a recording; seconds since its start."""
    from perfdoctor.recording.reader import Recording
    from perfdoctor.recording.schema import Fact, Reading, Unavailable

    if not recording.exists():
        return {"facts": [], "readings": [], "unavailable": []}
    opened = Recording.open(recording)
    readings = [
        [round((row.time_ns - opened.start_ns) / 1e9, 3), row.subject, row.name, row.value]
        for row in opened.rows(Reading)
        if row.probe == "gpu"
    ]
    facts = [
        [row.subject, row.name, row.value] for row in opened.rows(Fact) if row.probe == "gpu" and row.name != "uuid"
    ]
    missing = [row.reason for row in opened.rows(Unavailable) if row.probe == "gpu"]
    opened.close()
    return {"facts": facts, "readings": readings, "unavailable": missing}
