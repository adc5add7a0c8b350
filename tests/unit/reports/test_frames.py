"""The parts of a diagnosis as DataFrames, columns as documented."""

import re
from collections.abc import Callable
from typing import get_args

import pytest

from perfdoctor.diagnosis import Diagnosis, Part
from tests.builders.diagnoses import ALL, input_bound, straggler
from tests.files import ROOT

PAGE = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")


def documented() -> dict[str, list[str]]:
    rows = [line.strip("|").split(" | ") for line in PAGE.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return {name.split("`")[1]: re.findall(r"`(\w+)`", columns) for name, _, columns in rows}


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("part", get_args(Part))
def test_every_part_has_the_columns_that_are_documented(make: Callable[[], Diagnosis], part: Part) -> None:
    assert list(make().to_frame(part).columns) == documented()[part]


def test_rows_are_what_the_diagnosis_says() -> None:
    diagnosis = input_bound()
    findings, breakdown = diagnosis.to_frame(), diagnosis.to_frame("breakdown")
    assert findings["cause"].tolist() == [finding.cause for finding in diagnosis.findings]
    assert findings["bottleneck"].tolist() == [finding.bottleneck for finding in diagnosis.findings]
    assert breakdown["share"].sum() == pytest.approx(1.0, abs=0.001)
    assert len(diagnosis.to_frame("evidence")) == sum(len(finding.evidence) for finding in diagnosis.findings)
    assert len(diagnosis.to_frame("series")) == sum(len(series.times) for series in diagnosis.series)
    by_rank = straggler().to_frame("ranks").groupby("rank")["share"].sum()
    assert len(by_rank) == len(straggler().ranks)


def test_an_unknown_part_is_refused_with_the_parts_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no 'verdicts' in a diagnosis; there are findings, verdict"):
        input_bound().to_frame("verdicts")  # type: ignore[arg-type]
