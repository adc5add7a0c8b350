"""The page says of one job how its numbers were made: what is reported is what the recording has."""

from pathlib import Path

import pytest

from perfdoctor.analysis.from_recording import examine
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.messages import Message
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CodeSample, InterpreterSample, StackSegment
from perfdoctor.reports.html import render
from perfdoctor.reports.wording import worded
from tests.recordings import corpus, packing


def recorded(name: str, folder: Path) -> tuple[Recording, Diagnosis]:
    file = folder / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", file)
    recording = Recording.open(file)
    return recording, examine(recording)


def told(diagnosis: Diagnosis) -> dict[str, dict[str, object]]:
    return {said.id: dict(said.values) for said in diagnosis.method if isinstance(said, Message)}


def test_a_job_watched_from_outside(tmp_path: Path) -> None:
    recording, diagnosis = recorded("straggler_disk", tmp_path)
    said = told(diagnosis)
    assert (said["method.states"]["trainers"], said["method.states"]["workers"]) == (2, 2)
    assert said["method.states"]["hertz"] == pytest.approx(28, abs=2), "as the recorder had lowered it"
    assert said["method.stacks"]["pieces"] == len(recording.rows(StackSegment))
    assert said["method.machine_code"]["samples"] == len(recording.rows(CodeSample))
    assert said["method.interpreter"]["samples"] == len(recording.rows(InterpreterSample))
    assert "method.no_steps" in said
    low, high = (said["method.drawn_anew"][name] for name in ("low", "high"))
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low < diagnosis.verdict.share < high
    recording.close()
    assert all(worded(line) in render(diagnosis).replace("&#39;", "'") for line in diagnosis.method)


def test_a_job_that_marked_its_steps(tmp_path: Path) -> None:
    recording, diagnosis = recorded("sound_from_inside", tmp_path)
    said = told(diagnosis)
    assert said["method.marked"] == {"steps": 500, "phases": len(diagnosis.steps["phases"])}
    assert "method.no_steps" not in said
    assert {probe for probe, _, _ in said["method.readings"]["rounds"]} >= {"cpu", "memory", "io"}  # type: ignore[attr-defined]
    recording.close()
