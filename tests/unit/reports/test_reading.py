"""JSON reports that are read back, the schema that they keep to, and files that are none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import perfdoctor
from perfdoctor.diagnosis import OUTSIDE, Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording
from perfdoctor.reports import compared_json, treated_json
from perfdoctor.reports.json import render
from perfdoctor.reports.reading import schema
from perfdoctor.results.stuck import KINDS
from tests.builders import comparisons, diagnoses
from tests.builders.jobs import write
from tests.builders.trials import treated


@pytest.fixture(params=diagnoses.ALL, ids=lambda make: make.__name__)
def diagnosis(request: pytest.FixtureRequest) -> Diagnosis:
    made: Diagnosis = request.param()
    return made


def report(folder: Path, text: str) -> Path:
    path = folder / "out.json"
    path.write_text(text)
    return path


def test_a_report_that_is_read_says_what_it_said(diagnosis: Diagnosis, tmp_path: Path) -> None:
    text = render(diagnosis)
    again = perfdoctor.load(report(tmp_path, text))
    assert isinstance(again, Diagnosis)
    assert render(again) == text


def test_the_schema_is_one_and_reports_keep_to_it(diagnosis: Diagnosis) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    document = json.loads(render(diagnosis))
    document["verdict"]["level"] = OUTSIDE  # perfdoctor's own words, which no stranger can choose
    jsonschema.validate(document, schema())


def test_the_schema_knows_every_kind_of_hang() -> None:
    assert set(schema()["$defs"]["stuck"]["properties"]["kind"]["enum"]) == set(KINDS)


def without_verdict(document: dict[str, Any]) -> None:
    del document["verdict"]


def with_a_share_above_one(document: dict[str, Any]) -> None:
    document["breakdown"][0]["share"] = 1.5


def with_a_bottleneck_and_no_cause(document: dict[str, Any]) -> None:
    document["verdict"]["cause"] = None


def with_an_unknown_bottleneck(document: dict[str, Any]) -> None:
    document["findings"][0]["bottleneck"] = "disk"


def of_another_schema(document: dict[str, Any]) -> None:
    document["schema"] = 2


@pytest.mark.parametrize(
    "spoil",
    [
        without_verdict,
        with_a_share_above_one,
        with_a_bottleneck_and_no_cause,
        with_an_unknown_bottleneck,
        of_another_schema,
    ],
)
def test_what_breaks_the_contract_breaks_the_schema(spoil: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(render(diagnoses.input_bound()))
    spoil(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema())


def test_a_reader_of_today_reads_what_later_versions_add(tmp_path: Path) -> None:
    document = json.loads(render(diagnoses.input_bound()))
    document["added"] = document["verdict"]["added"] = document["findings"][0]["added"] = 1
    jsonschema.validate(document, schema())
    again = perfdoctor.load(report(tmp_path, json.dumps(document)))
    assert isinstance(again, Diagnosis)
    assert render(again) == render(diagnoses.input_bound())


def test_a_recording_is_a_recording_and_a_treatment_has_a_diagnosis(tmp_path: Path) -> None:
    recording = perfdoctor.load(write(tmp_path / "job.perfdoctor"))
    assert isinstance(recording, Recording)
    recording.close()
    made = perfdoctor.load(report(tmp_path, treated_json.render(treated())))
    assert isinstance(made, Diagnosis)
    assert render(made) == render(treated().diagnosis)


def damaged(old: str, new: str) -> str:
    text = render(diagnoses.input_bound())
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "sentence", "move"),
    [
        (damaged('"schema": 1', '"schema": 7'), "report schema 7, and this perfdoctor reads schema 1", "version that"),
        (render(diagnoses.input_bound())[:-30], "is damaged", "--json FILE.json"),
        (damaged('"breakdown"', '"brokendown"'), "lacks 'breakdown'", "--json FILE.json"),
        (damaged('"io.log_write"', '"io.tapes"'), "knows no cause 'io.tapes'", "--json FILE.json"),
        (
            compared_json.render(comparisons.compared(comparisons.report([0.1] * 9), comparisons.report([0.1] * 9))),
            "There is no diagnosis in",
            "--json FILE.json",
        ),
        ('{"traceEvents": []}', "is not a perfdoctor recording", "perfdoctor analyze"),
        ("hello", "is not a perfdoctor recording", "--recording"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_the_next_move(
    text: str, sentence: str, move: str, tmp_path: Path
) -> None:
    with pytest.raises(PerfDoctorError) as caught:
        perfdoctor.load(report(tmp_path, text))
    assert sentence in str(caught.value)
    assert move in caught.value.hint


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PerfDoctorError, match="There is no recording at"):
        perfdoctor.load(tmp_path / "nothing")
