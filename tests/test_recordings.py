"""What perfdoctor says of each recording of the corpus is what it said before.

Where another verdict is wanted, `python tests/recordings/corpus.py update` writes it, and the diff shows it.
"""

import json
import lzma
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from perfdoctor.analysis.from_recording import examine
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording
from perfdoctor.reports import console, html, reading
from perfdoctor.reports.json import render
from perfdoctor.reports.language import language
from perfdoctor.reports.text import is_prose
from perfdoctor.reports.wording import worded_fixes
from perfdoctor.timeline.gpus import Gpus
from tests.builders.phrases import ascii_marks, english_runs
from tests.files import ROOT
from tests.recordings import corpus, packing

# Of a page: what is no text, and code; the texts that tags hold for screen readers and scripts stay.
LEFT_OUT = re.compile(
    r"<(style|script|pre|code)\b.*?</\1>|<meta[^>]*>|<[a-z]+|</[a-z0-9]+>|\b(?!aria-label|title|data-)[a-z-]+=\"[^\"]*\"",
    re.DOTALL,
)
SECRET = "s3cr3t-Value_77"
# Recordings in which perfdoctor names another cause than the true one, and why.
KNOWN_MISSES: dict[str, str] = {
    "fresh_workers": "The fix gains 0.30; 0.20 go to the start of workers, and 0.27 to what they hand over.",
    "gpu_dodging_agent": "Python's games take 0.35, and so does launching what they wait for.",
    "gpu_sync_in_forward": "The fix gains 0.06 only.",
    "helper_lists": "Most of what making and handing over lists costs is its collector (0.14, found by trial).",
    "gpu_tagger_encoder": "The reads that wait also launch, and more of the time goes there.",
}


@cache
def examined(name: str) -> Diagnosis:
    return corpus.examined(corpus.FOLDER / f"{name}{corpus.SUFFIX}")


@pytest.mark.parametrize("name", corpus.names())
def test_a_recording_gets_the_diagnosis_that_it_got_before(name: str) -> None:
    document = json.loads(render(examined(name)))
    changed = corpus.differences(corpus.load(name)["diagnosis"], corpus.reduced(document))
    assert not changed, "\n".join([f"{name}: {len(changed)} differences", *changed[:40]])
    jsonschema.validate(document, reading.schema())
    assert json.loads(render(reading.diagnosis_of(document))) == document


def code_of(diagnosis: Diagnosis) -> Iterator[str]:
    for finding in diagnosis.findings:
        for fix in worded_fixes(finding):
            if not is_prose(fix.change):
                yield from map(str.strip, fix.change.splitlines())


def english_in(diagnosis: Diagnosis) -> list[str]:
    """What is English in the Chinese report of a diagnosis, the code of its fixes and the names of the job left out."""
    diagnosis = replace(diagnosis, job={})
    with language("zh"):
        text = console.render(diagnosis, width=110, color=False, encoding="utf-8")
        text += "\n" + LEFT_OUT.sub("\n", html.render(diagnosis))
        code = set(code_of(diagnosis))
    return english_runs("\n".join(line for line in text.splitlines() if line.strip() not in code))


@pytest.mark.parametrize("name", [name for name in corpus.names() if name.startswith("gpu_")])
def test_full_memory_by_itself_is_no_lack_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the jobs on a GPU, those whose launch queue was full spend much time in the kernel, and allocate nothing."""
    monkeypatch.setattr(Gpus, "memory_used", lambda gpus, pid: 0.95)
    found = corpus.examined(corpus.FOLDER / f"{name}{corpus.SUFFIX}").verdict.cause
    assert found == examined(name).verdict.cause


def test_without_names_of_pytorchs_functions_calls_are_not_taken_for_arithmetic_in_silence(tmp_path: Path) -> None:
    """As of a perfdoctor that was killed: names are looked up at the end."""
    file = tmp_path / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"gnn_node_loop{corpus.SUFFIX}", file)
    with closing(sqlite3.connect(file)) as db:
        db.execute("DELETE FROM Symbol")
        db.commit()
    with Recording.open(file) as recording:
        found = examine(recording)
    assert found.verdict.confidence <= 0.5
    assert "calls of operators look like arithmetic" in console.render(found, width=400, color=False, encoding="utf-8")


@pytest.mark.parametrize("name", corpus.names())
def test_a_recording_is_told_in_chinese(name: str) -> None:
    diagnosis = examined(name)
    assert english_in(diagnosis) == []
    with language("zh"):
        texts = html.render(diagnosis), console.render(diagnosis, width=400, color=False, encoding="utf-8")
    assert [left for text in texts for left in ascii_marks(text)] == []


def test_english_is_seen_where_it_is_left() -> None:
    diagnosis = examined("slow_store")
    verdict = replace(diagnosis.verdict, summary="Waiting for data from the network takes most of the time.")
    assert english_in(replace(diagnosis, verdict=verdict))


def test_every_example_is_in_the_corpus() -> None:
    examples = {readme.parent.name for readme in (ROOT / "examples").glob("*/README.md")}
    assert examples - set(corpus.names()) == set()


@pytest.mark.parametrize("name", corpus.names())
def test_a_recording_is_small_and_described(name: str) -> None:
    assert (corpus.FOLDER / f"{name}{corpus.SUFFIX}").stat().st_size <= corpus.LARGEST
    told = corpus.load(name)
    assert list(told) == ["about", "recorded", "truth", "diagnosis"]
    assert told["about"].endswith(".")
    assert list(told["truth"]) == ["bottleneck", "cause", "share", "straggler_rank"]


def test_the_true_cause_is_named_but_for_the_misses_that_are_known() -> None:
    missed = set()
    for name in corpus.names():
        told = corpus.load(name)
        truth, verdict = told["truth"], told["diagnosis"]["verdict"]
        keys = ("cause", "straggler_rank")
        if truth["cause"] and [truth[key] for key in keys] != [verdict[key] for key in keys]:
            missed.add(name)
    assert missed == set(KNOWN_MISSES)


def with_secrets(name: str, folder: Path) -> Path:
    """A recording of the corpus as if its job had been started by alice on gpu-box-7, with secrets all over."""
    file = folder / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", file)
    with closing(sqlite3.connect(file)) as db:
        command = f"/home/alice/venv/bin/python /home/alice/train.py --api-key={SECRET} --user alice"
        environment = {"NCCL_TOKEN": SECRET, "OMP_NUM_THREADS": "1", "HF_TOKEN": SECRET, "MASTER_ADDR": "gpu-box-7"}
        db.execute("UPDATE ProcessSeen SET command = ?, environment = ?", (command, json.dumps(environment)))
        db.execute("UPDATE meta SET value = 'gpu-box-7' WHERE key = 'host'")
        db.execute("UPDATE ThreadSample SET target = 'file:/scratch/alice/shard' WHERE target LIKE 'file:%'")
        db.execute("UPDATE Event SET text = text || ?", (f" token={SECRET}",))
        segments = db.execute("SELECT rowid, trace FROM StackSegment").fetchall()
        for rowid, trace in segments:
            events = json.loads(packing.zlib.decompress(trace))
            events[0]["args"]["filename"] = f"/home/alice/password={SECRET}/train.py"
            db.execute(
                "UPDATE StackSegment SET trace = ? WHERE rowid = ?",
                (packing.zlib.compress(json.dumps(events).encode()), rowid),
            )
        db.commit()
        assert segments
    return file


def every_text(recording: bytes, folder: Path) -> bytes:
    """All of a recording's bytes, and what is packed inside of it."""
    file = folder / "look.perfdoctor"
    file.write_bytes(recording)
    with closing(sqlite3.connect(file)) as db:
        traces = [packing.zlib.decompress(trace) for (trace,) in db.execute("SELECT trace FROM StackSegment")]
    return b"".join([recording, *traces])


def test_what_is_added_holds_no_secrets_and_no_names(tmp_path: Path) -> None:
    source = with_secrets("sound_training", tmp_path)
    assert SECRET.encode() in every_text(source.read_bytes(), tmp_path)
    told: dict[str, Any] = {"about": "A job of alice's.", "truth": corpus.truth("cpu.model_compute", None, None)}
    target = corpus.add(source, "mine", told, {"/scratch": "/data"}, folder=tmp_path)
    kept = every_text(lzma.decompress(target.read_bytes()), tmp_path)
    for word in (SECRET, "alice", "gpu-box-7", "/scratch"):
        assert word.encode() not in kept
        assert word not in (tmp_path / "mine.json").read_text().replace("A job of alice's.", "")
    assert b"--api-key=***" in kept
    assert b"/home/user/train.py" in kept
    written = json.loads((tmp_path / "mine.json").read_text())
    assert written["diagnosis"]["verdict"]["cause"] == "cpu.model_compute"
    assert written["recorded"]["how"] == "attach"


def test_a_recording_that_is_too_large_is_refused_with_the_next_move(tmp_path: Path, monkeypatch: Any) -> None:
    source = with_secrets("sound_training", tmp_path)
    monkeypatch.setattr(corpus, "LARGEST", 10_000)
    with pytest.raises(PerfDoctorError, match="are allowed") as refused:
        corpus.add(source, "mine", {"about": "", "truth": {}}, {}, folder=tmp_path)
    assert "--duration" in refused.value.hint
    assert not (tmp_path / f"mine{corpus.SUFFIX}").exists()


def test_differences_tell_what_changed() -> None:
    kept = {"verdict": {"cause": "io.swap", "share": 0.5}, "breakdown": {"io.swap": 0.5}, "steps": {"mean_s": 0.02}}
    told = {"verdict": {"cause": None, "share": 0.5004}, "breakdown": {"io.swap": 0.6}, "steps": {"mean_s": 0.0201}}
    assert corpus.differences(kept, kept) == []
    assert corpus.differences(kept, told) == [
        'verdict / cause: "io.swap" -> null',
        "breakdown / io.swap: 0.5 -> 0.6",
        "steps / mean_s: 0.02 -> 0.0201",
    ]
