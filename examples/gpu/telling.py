"""Tells what was gathered: recordings into the corpus, small traces beside them, and what else the page needs.

All of it lies in the repository then, so the page can be written anew from there, after every change of a rule.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import beside
import gathering
import keeping
import looking
import planted

from perfdoctor.analysis.from_recording import examine
from perfdoctor.analysis.from_traces import diagnose_traces
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Fact
from perfdoctor.traces.reader import read_trace
from tests.recordings import corpus, packing

MEASURED = "measured.json"
_NOTHING: dict[str, Any] = {"notes": [], "timer": [], "jobs": {}}
_OF_VERDICT = ("cause", "bottleneck", "share")


class Kept:
    """What the repository has of jobs on GPUs.

    Args:
        root: of the repository, or of a folder that takes its place.
    """

    def __init__(self, root: Path) -> None:
        self.corpus = root / "tests" / "recordings"
        self.traces = self.corpus / "traces"
        file = self.traces / MEASURED
        self.measured: dict[str, Any] = _NOTHING | (json.loads(file.read_text()) if file.exists() else {})

    def take(self, folder: Path, renames: dict[str, str]) -> list[str]:
        """Adds what was gathered, in place of what there is of the same jobs.

        Args:
            folder: with a folder for each job.
            renames: as ``corpus.add`` takes them; the machine's own paths are known.

        Returns:
            The jobs that were added.
        """
        self.traces.mkdir(parents=True, exist_ok=True)
        known = {one.name: one for one in planted.every()}
        # A folder that was cut off has no such file.
        whole = sorted(file.parent for file in folder.glob(f"*/{looking.GATHERED}"))
        for job in whole:
            self._take_job(job, known[job.name], renames)
        timer = folder / gathering.TIMER
        if timer.exists():
            self.measured["timer"] = json.loads(timer.read_text())
        (self.traces / MEASURED).write_text(corpus.as_text(self.measured) + "\n")
        return [job.name for job in whole]

    def _take_job(self, folder: Path, one: planted.Planted, renames: dict[str, str]) -> None:
        told = json.loads((folder / looking.GATHERED).read_text())
        slow, fast = told.get("bottleneck_pace"), told.get("fixed_pace")
        notes, share = list(told["notes"]), round(1 - slow / fast, 3) if slow and fast else None
        renames = {**renames, **told["renames"]}
        recording = folder / beside.RECORDING
        if recording.exists():
            truth = corpus.truth(one.expected, share, one.straggler)
            notes += self._add(recording, one.kept_as, f"{_on(recording)}. {one.about}", truth, renames)
        fixed = folder / looking.FIXED
        if fixed.exists():
            name = f"{one.kept_as}_fixed"
            # What is left of the time when the bottleneck is gone, somebody has to look at.
            before = (self.corpus / f"{name}.json").exists()
            truth = self.load(name)["truth"] if before else corpus.truth(None, None, None)
            notes += self._add(fixed, name, f"{_on(fixed)}, with the fix. {one.about}", truth, renames)
        notes += self._keep_traces(folder, one)
        row = {"kept_as": one.kept_as, "expected": one.expected, "about": one.about, "dry": told["dry"]}
        row |= {"device": _device(recording), "steps_per_s": slow, "fixed_steps_per_s": fast, "true_share": share}
        gpu, _ = beside.means_of(recording)
        row |= {"others": beside.others(folder, gpu), "notes": [_one_line(note) for note in notes]}
        inside = folder / "inside.perfdoctor"
        if inside.exists():
            with Recording.open(inside) as opened:
                row["inside"] = _said(examine(opened))
        self.measured["jobs"] = dict(sorted({**self.measured["jobs"], one.name: row}.items()))

    def _add(self, recording: Path, name: str, about: str, truth: dict[str, Any], renames: dict[str, str]) -> list[str]:
        """Into the corpus; what hinders it is a note."""
        ids = {uuid: f"GPU-{number}" for number, uuid in enumerate(_facts(recording, "uuid", "gpu:"))}
        try:
            corpus.add(recording, name, {"about": about, "truth": truth}, {**renames, **ids}, self.corpus)
        except PerfDoctorError as error:
            return [f"the recording {name} was not kept: {error}"]
        return []

    def _keep_traces(self, folder: Path, one: planted.Planted) -> list[str]:
        for old in self.kept_traces(one.kept_as):
            old.unlink()
        notes = []
        for trace in sorted(folder.glob("rank*.json.gz")):
            if not keeping.trim(trace, self.traces / f"{one.kept_as}.{trace.name.split('.')[0]}{keeping.SUFFIX}"):
                notes.append(f"the trace {trace.name} was too large to keep")
        return notes

    def kept_traces(self, name: str) -> list[Path]:
        """The traces of a job's ranks."""
        return sorted(self.traces.glob(f"{name}.rank*{keeping.SUFFIX}"))

    def load(self, name: str) -> dict[str, Any]:
        """What the corpus says of a recording."""
        return dict(json.loads((self.corpus / f"{name}.json").read_text()))

    def attached(self, name: str) -> dict[str, Any] | None:
        """What attach says, as the corpus has it; None without a recording."""
        if not (self.corpus / f"{name}.json").exists():
            return None
        said = self.load(name)["diagnosis"]
        gains = {finding["cause"]: finding["predicted_speedup"] for finding in said["findings"]}
        return {**{key: said["verdict"][key] for key in _OF_VERDICT}, "shares": said["breakdown"], "gains": gains}

    def traced(self, name: str) -> dict[str, Any] | None:
        """What the traces alone say; None where there are none."""
        with tempfile.TemporaryDirectory() as folder:
            kept = self.kept_traces(name)
            traces = [keeping.unpack(file, Path(folder, file.name.removesuffix(".xz"))) for file in kept]
            return _said(diagnose_traces([read_trace(file) for file in traces])) if traces else None

    def compared(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        """The probe's readings beside those of others, as ``beside.compare`` has them."""
        packed = self.corpus / f"{job['kept_as']}{corpus.SUFFIX}"
        if not packed.exists():
            return []
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, beside.RECORDING)
            packing.unpack(packed, file)
            return beside.compare(beside.means_of(file)[1], job["others"])


def _said(diagnosis: Diagnosis) -> dict[str, Any]:
    told = {key: getattr(diagnosis.verdict, key) for key in _OF_VERDICT}
    return {**told, "shares": {line.cause: line.share for line in diagnosis.breakdown}}


def _facts(recording: Path, name: str, of: str = "") -> list[str]:
    """The values of a fact, of subjects whose names begin so."""
    with Recording.open(recording) as opened:
        found = [str(fact.value) for fact in opened.rows(Fact) if fact.name == name and fact.subject.startswith(of)]
    return list(dict.fromkeys(found))


def _on(recording: Path) -> str:
    """On which GPU, as the corpus says it: ``On an H200``."""
    name = next(iter(_facts(recording, "name", "gpu:")), "CPU, to try the script").removeprefix("NVIDIA ")
    return f"On {'an' if re.match('[AEFHILMNORSX][A-Z]*[0-9]', name) else 'a'} {name}"


def _device(recording: Path) -> str:
    """The GPU and the versions that matter, in a line."""
    if not recording.exists():
        return "not known"
    with Recording.open(recording) as opened:
        day, cores = opened.meta.get("started", "?")[:10], opened.meta.get("cores", "?")

    gpu = next(iter(_facts(recording, "name", "gpu:")), "no GPU")
    versions = [f"{of} {v}" for of in ("driver", "torch", "python") for v in _facts(recording, f"{of}_version")[:1]]
    return ", ".join([gpu, f"{cores} cores", *versions, day])


def _one_line(text: str) -> str:
    return " ".join(text.split())
