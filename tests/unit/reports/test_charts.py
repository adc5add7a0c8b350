import math
import re

import pytest

from perfdoctor.diagnosis import Series
from perfdoctor.reports.charts import charts, thin_out, ticks
from tests.builders import diagnoses


def test_each_chart_title_is_one_chart_with_its_lines() -> None:
    drawn = charts(diagnoses.input_bound().series, 15.0)
    assert [chart.title for chart in drawn] == ["Processor time", "Memory of the job", "Reads from storage"]
    assert [line.name for line in drawn[0].lines] == ["trainer", "worker 4250", "worker 4251"]
    assert "trainer, 20% to 50%" in drawn[0].label
    assert "GB" in drawn[1].lines[0].range


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]


def test_a_drawing_says_what_was_measured() -> None:
    (chart,) = charts([Series("c", "n", "MB/s", (0.0, 5.0, 10.0), (0.0, 8.0, 2.0))], 20.0)
    assert (chart.bottom, chart.top) == (0.0, 8.0)
    read = [(x / 1000 * 20, chart.top * (1 - y / 100)) for x, y in points(chart.lines[0].path)]
    assert read == [pytest.approx(point) for point in ((0.0, 0.0), (5.0, 8.0), (10.0, 2.0))]


def test_a_gap_in_the_values_is_a_gap_in_the_line() -> None:
    at, whole = diagnoses.times(9, 9.0), (1.0, 2.0, 3.0) * 3
    broken = (1.0, 2.0, None, 3.0, 1.0, math.nan, 2.0, 3.0, 1.0)
    for values, pieces in ((whole, 1), (broken, 3)):
        (chart,) = charts([Series("c", "n", "", at, values)], 9.0)
        assert chart.lines[0].path.count("M") == pieces


def test_a_value_between_gaps_is_a_dot() -> None:
    (chart,) = charts([Series("c", "n", "", (0.0, 1.0, 2.0, 3.0), (None, 5.0, None, None))], 3.0)
    assert chart.lines[0].path == "M333.3 0L333.3 0"


def test_constant_zero_and_negative_values_are_drawn() -> None:
    for value in (0.0, -3.0, 1e-12, 1e15):
        for unit in ("", "bytes", "fraction", "s"):
            (chart,) = charts([Series("c", "n", unit, (0.0, 1.0), (value, value))], 1.0)
            assert all(0 <= y <= 100 for _, y in points(chart.lines[0].path))


def test_thinning_keeps_peaks_and_gaps() -> None:
    values: list[float | None] = [0.5] * 10_000
    values[1234], values[4321] = 9.0, -9.0
    values[7000:7500] = [None] * 500
    found = thin_out(range(10_000), values, 200)
    assert len(found) <= 202
    assert (1234, 9.0) in found
    assert (4321, -9.0) in found
    assert [at for at, value in found if value is None]
    assert [at for at, _ in found] == sorted(at for at, _ in found)


@pytest.mark.parametrize(("span", "step"), [(0.004, 0.0005), (15.0, 2.0), (16.0, 2.0), (100.0, 15.0), (3600.0, 600.0)])
def test_ticks_are_where_people_count(span: float, step: float) -> None:
    assert ticks(span)[1] == pytest.approx(step)
    assert ticks(span)[-1] <= span < ticks(span)[-1] + step + 1e-9
