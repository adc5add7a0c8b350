"""Charts of a diagnosis' series, as SVG to be written into a page: measurements on the one time axis of the report.

A drawing is stretched to the width that there is, so all text stands beside it. What a script reads at an instant, it
reads from the drawing itself: its points, and the largest value that ``Chart.top`` gives.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfdoctor.diagnosis import Series
from perfdoctor.reports.text import brief, quantity
from perfdoctor.reports.wording import label, worded

# A chart with more lines than this cannot be read; the page says how many were left out.
MAX_LINES = 6
# A page is to stay below 500 KB: a point is about 9 bytes.
MAX_CHARTS, MAX_POINTS_PER_PAGE = 24, 16_000
# Judgement: more are not seen on a screen, and fewer show no course.
MAX_POINTS_PER_LINE, MIN_POINTS_PER_LINE = 400, 20
# Units of a drawing, before it is stretched.
WIDTH, HEIGHT = 1000, 100
# Distances between ticks of the time axis, in seconds: what people count in.
_STEPS_S = (
    *(factor * 10.0**power for power in range(-6, 1) for factor in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0),
)
_MOST_TICKS = 8  # labels of more run into each other on a phone

_WHOLES = ("fraction", "share")

Point = tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart.

    Attributes:
        number: of its look: colour and dashes.
        range: its smallest and largest value in words.
        path: its course, as an SVG path; gaps where there is no value.
    """

    number: int
    name: str
    range: str
    path: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for the page.

    Attributes:
        unit: of its values, as ``quantity`` takes it.
        top: the value at the upper border; the lower one is ``bottom``.
        label: all of it in words, for those who cannot see it.
        left_out: how many lines were not drawn.
    """

    title: str
    unit: str
    bottom: float
    top: float
    label: str
    lines: tuple[Line, ...]
    left_out: int


def charts(series: Sequence[Series], span_s: float) -> list[Chart]:
    """One chart per chart title, in the order in which the titles first appear; at most ``MAX_CHARTS``.

    Series without a single value are not drawn.

    Args:
        series: the measurements.
        span_s: seconds from the left border of all charts to the right one.
    """
    by_title: dict[str, list[Series]] = {}
    for one in (_until(one, span_s) for one in series):
        if _values(one):
            by_title.setdefault(one.chart, []).append(one)
    groups = list(by_title.values())[:MAX_CHARTS]
    lines = sum(min(len(group), MAX_LINES) for group in groups)
    points = max(MIN_POINTS_PER_LINE, min(MAX_POINTS_PER_PAGE // max(1, lines), MAX_POINTS_PER_LINE))
    return [_chart(group, span_s, points) for group in groups]


def thin_out(times: Sequence[float], values: Sequence[float | None], limit: int) -> list[Point]:
    """At most about ``limit`` points: the lowest and the highest of each stretch of time, so that peaks stay.

    A stretch without any value stays as a gap.
    """
    points = [(at, _finite(value)) for at, value in zip(times, values, strict=True)]
    if len(points) <= limit:
        return points
    stretch = math.ceil(2 * len(points) / limit)
    kept: list[Point] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        known = [(value, place) for place, (_, value) in enumerate(part) if value is not None]
        places = sorted({min(known)[1], max(known)[1]}) if known else [0]
        kept.extend(part[place] for place in places)
    return kept


def ticks(span_s: float) -> list[float]:
    """Instants from 0 on that people count in, evenly apart, none beyond the span."""
    step = next((step for step in _STEPS_S if span_s / step <= _MOST_TICKS), _STEPS_S[-1])
    return [number * step for number in range(int(span_s / step + 1e-9) + 1)]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _until(series: Series, span_s: float) -> Series:
    """The series without what lies right of the right border."""
    inside = sum(at <= span_s for at in series.times)
    return replace(series, times=series.times[:inside], values=series.values[:inside])


def _values(series: Series) -> list[float]:
    return [value for value in map(_finite, series.values) if value is not None]


def _most(group: Sequence[Series]) -> list[Series]:
    """The lines to draw: those with the largest mean, in their own order."""
    means = [sum(values) / len(values) for values in map(_values, group)]
    largest = sorted(range(len(group)), key=lambda place: -means[place])[:MAX_LINES]
    return [group[place] for place in sorted(largest)]


def _chart(group: Sequence[Series], span_s: float, points: int) -> Chart:
    drawn = _most(group)
    unit, title = group[0].unit, brief(worded(group[0].chart))
    highest = max(max(_values(one)) for one in drawn)
    bottom = min(0.0, *(min(_values(one)) for one in drawn))
    top = highest if highest > bottom else bottom + 1.0
    if unit in _WHOLES:
        top = max(1.0, top)  # a disk that is busy for 2% of the time is not to look busy
    lines = []
    for number, one in enumerate(drawn):
        values = _values(one)
        least, most = quantity(min(values), one.unit), quantity(max(values), one.unit)
        path = _path(thin_out(one.times, one.values, points), span_s, bottom, top)
        lines.append(Line(number, brief(worded(one.name)), _range(least, most), path))
    listed = label("listed", items=tuple(label("sequence", items=(line.name, line.range)) for line in lines))
    said = label("named", name=title, value=listed)
    axis = brief(label("unit", unit=unit, one=False))
    return Chart(title, axis, bottom, top, said, tuple(lines), len(group) - len(drawn))


def _range(least: str, most: str) -> str:
    """From the smallest to the largest value; the unit of both stands once, and so does one value."""
    if least == most:
        return most
    number, _, unit = least.rpartition(" ")
    same = number and unit == most.rpartition(" ")[2]
    return label("between", least=number if same else least, most=most)


def _path(points: Sequence[Point], span_s: float, bottom: float, top: float) -> str:
    """A line with gaps where there is no value; a value between two gaps is a line of no length, which is a dot."""
    pieces: list[list[str]] = [[]]
    for at, value in points:
        if value is None:
            pieces.append([])
            continue
        x = WIDTH * at / span_s if span_s > 0 else 0.0
        y = HEIGHT * (1 - (value - bottom) / (top - bottom))
        pieces[-1].append(f"{_short(x)} {_short(y)}")
    return "".join("M" + "L".join(piece if len(piece) > 1 else piece * 2) for piece in pieces if piece)


def _short(value: float) -> str:
    """With one digit behind the point where it is not 0."""
    return f"{value:.1f}".removesuffix(".0")
