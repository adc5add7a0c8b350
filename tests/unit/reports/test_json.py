import json
import math
from dataclasses import replace
from typing import Any

import pytest

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.json import render
from tests.builders import diagnoses


def loads(text: str) -> Any:
    """Reads JSON as strict parsers do."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(params=diagnoses.ALL, ids=lambda make: make.__name__)
def diagnosis(request: pytest.FixtureRequest) -> Diagnosis:
    made: Diagnosis = request.param()
    return made


def test_the_keys_are_the_contract(diagnosis: Diagnosis) -> None:
    document = loads(render(diagnosis))
    assert list(document) == [
        "schema", "perfdoctor", "verdict", "breakdown", "findings", "ranks", "steps", "not_examined",
        "overhead", "job", "blocks", "stuck",
    ]  # fmt: skip
    assert document["schema"] == 1
    assert list(document["verdict"]) == [
        "bottleneck", "cause", "share", "confidence", "predicted_speedup", "straggler_rank", "level",
        "summary",
    ]  # fmt: skip
    for finding in document["findings"]:
        assert list(finding) == [
            "cause", "bottleneck", "severity", "share", "predicted_speedup", "title", "summary", "evidence",
            "fixes", "refuted_by", "ranks",
        ]  # fmt: skip
        assert finding["cause"].startswith(finding["bottleneck"] + ".")
        assert all(list(item) == ["name", "value", "unit", "probe"] for item in finding["evidence"])
        assert all(
            list(fix) == ["title", "why", "change", "predicted_speedup", "speedup_range", "changes_step"]
            for fix in finding["fixes"]
        )
    assert all(list(item) == ["probe", "reason", "enable"] for item in document["not_examined"])


def test_the_breakdown_is_whole(diagnosis: Diagnosis) -> None:
    lines = loads(render(diagnosis))["breakdown"]
    assert all(list(line) == ["cause", "share"] for line in lines)
    assert sum(line["share"] for line in lines) == pytest.approx(1, abs=0.001)


def test_no_verdict_is_null() -> None:
    verdict = loads(render(diagnoses.undecided()))["verdict"]
    assert verdict["bottleneck"] is None
    assert verdict["cause"] is None
    assert "watch at least 5 s" in verdict["summary"]


def test_it_is_ascii_and_any_parser_can_read_its_strings() -> None:
    text = render(diagnoses.hostile())
    assert text.isascii()
    assert "\x1b" not in text
    job = loads(text)["job"]
    job["command"].encode("utf-8")  # fails on a lone surrogate
    assert diagnoses.ATTACK in job["command"]


def test_numbers_that_json_cannot_say_are_null() -> None:
    evidence = loads(render(diagnoses.hostile()))["findings"][0]["evidence"]
    assert [item["value"] for item in evidence[1:]] == [None, None]


def test_numbers_of_other_libraries_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    steps = {"count": numpy.int64(3), "median_s": numpy.float32(0.5), "worst_s": numpy.float64(math.nan)}
    document = loads(render(replace(diagnoses.sound(), steps=steps)))
    assert document["steps"] == {"count": 3, "median_s": 0.5, "worst_s": None}


def test_anything_else_is_refused() -> None:
    with pytest.raises(TypeError, match="plain values only, not object"):
        render(replace(diagnoses.sound(), job={"what": object()}))
