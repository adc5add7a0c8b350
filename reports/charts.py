"""Charts of a diagnosis' series, as SVG to be written into a page.

The page styles them: colours are CSS variables (``--ink``, ``--grid``, ``--line-0`` …), text stays text.
Titles and names are not in the drawing but beside it, so that no untrusted text passes through matplotlib.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from perfdoctor.diagnosis import Series
from perfdoctor.reports.text import clean, quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A chart with more lines than this cannot be read; the page says how many were left out.
MAX_LINES = 8
# A page is to stay below 500 KB and 2 s: a chart costs about 4 KB and 40 ms, a point about 14 bytes.
MAX_CHARTS = 24
MAX_POINTS_PER_PAGE = 16_000
MAX_POINTS_PER_LINE = 300
MIN_POINTS_PER_LINE = 20

_SIZE_INCHES = (5.6, 2.1)
_LONGEST_UNIT = 16  # letters that fit beside an axis of this height
_STEPS = (1, 2, 2.5, 5, 10)  # ticks that people count in
_INK, _GRID = "#010101", "#020202"
_LINES = tuple(f"#0300{number:02x}" for number in range(MAX_LINES))
_VARIABLES = {_INK: "var(--ink)", _GRID: "var(--grid)"}
_VARIABLES |= {color: f"var(--line-{number})" for number, color in enumerate(_LINES)}
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "perfdoctor",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.parse_math": False,
    "path.simplify": False,
    "axes.unicode_minus": False,
}

Point = tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A line's entry in the legend: its colour's number, its name and its range in words."""

    color: int
    name: str
    range: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for the page.

    Attributes:
        svg: the drawing, trusted markup.
        label: all of it in words, for those who cannot see it.
        left_out: how many lines were not drawn.
    """

    title: str
    svg: str
    label: str
    lines: tuple[Line, ...]
    left_out: int


def charts(series: Sequence[Series]) -> list[Chart]:
    """One chart per chart title, in the order in which the titles first appear; at most ``MAX_CHARTS``.

    Series without a single value are not drawn.
    """
    by_title: dict[str, list[Series]] = {}
    for one in series:
        if _values(one):
            by_title.setdefault(one.chart, []).append(one)
    groups = list(by_title.values())[:MAX_CHARTS]
    lines = sum(min(len(group), MAX_LINES) for group in groups)
    points = max(MIN_POINTS_PER_LINE, min(MAX_POINTS_PER_PAGE // max(1, lines), MAX_POINTS_PER_LINE))
    return [_chart(group, number, points) for number, group in enumerate(groups)]


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


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _values(series: Series) -> list[float]:
    return [value for value in map(_finite, series.values) if value is not None]


def _most(group: Sequence[Series]) -> list[Series]:
    """The lines to draw: those with the largest mean, in their own order."""
    means = [sum(values) / len(values) for values in map(_values, group)]
    largest = sorted(range(len(group)), key=lambda place: -means[place])[:MAX_LINES]
    return [group[place] for place in sorted(largest)]


def _chart(group: Sequence[Series], number: int, points: int) -> Chart:
    drawn = _most(group)
    lines = []
    for color, one in enumerate(drawn):
        values = _values(one)
        span = f"{quantity(min(values), one.unit)} to {quantity(max(values), one.unit)}"
        lines.append(Line(color, clean(one.name), span))
    title = clean(group[0].chart)
    label = f"{title}: " + "; ".join(f"{line.name}, {line.range}" for line in lines)
    return Chart(title, _draw(drawn, number, points), label, tuple(lines), len(group) - len(drawn))


def _draw(group: Sequence[Series], number: int, points: int) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    highest = max(max(_values(one)) for one in group)
    lowest = min(min(_values(one)) for one in group)
    with rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained", frameon=False)
        axes = figure.add_subplot(frame_on=False)
        axes.set_ylim(min(0.0, 1.08 * lowest), 1.08 * highest if highest > 0 else 1.0)
        _style(axes, group[0].unit, highest)
        for color, one in zip(_LINES, group, strict=False):
            _line(axes, thin_out(one.times, one.values, points), color)
        axes.margins(x=0)
        out = StringIO()
        FigureCanvasSVG(figure).print_figure(out, format="svg", metadata={"Date": None})
    return _for_page(out.getvalue(), number)


def _style(axes: "Axes", unit: str, highest: float) -> None:
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    short = unit.replace("µ", "u")
    if len(short) > _LONGEST_UNIT or not short.isascii():
        short = ""
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=_STEPS))
    if short.startswith(("bytes", "B")) and highest > 0:
        axes.yaxis.set_major_locator(MultipleLocator(_binary_step(highest)))
    axes.yaxis.set_major_formatter(lambda value, _: quantity(value, short))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    axes.xaxis.set_major_formatter(lambda value, _: quantity(value, "s"))
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, length=0, pad=5)


def _binary_step(highest: float) -> float:
    """The power of two that gives two to four ticks: bytes are written with binary prefixes."""
    return float(2.0 ** math.ceil(math.log2(highest / 4)))


def _line(axes: "Axes", points: Iterable[Point], color: str) -> None:
    """A line with gaps where there is no value; a value between two gaps becomes a dot."""
    course = list(points)
    known = [value is not None for _, value in course]
    lonely = [
        here and not before and not after
        for before, here, after in zip([False, *known], known, [*known[1:], False], strict=False)
    ]
    times = [at for at, _ in course]
    values = [math.nan if value is None else value for _, value in course]
    axes.plot(times, values, color=color, linewidth=1.4, solid_joinstyle="round")
    if any(lonely):
        dots = [value if alone else math.nan for value, alone in zip(values, lonely, strict=True)]
        axes.plot(times, dots, color=color, linestyle="none", marker="o", markersize=3)


def _for_page(svg: str, number: int) -> str:
    """The drawing as part of a page: no prologue, no addresses, ids of its own, colours from the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg).replace("xlink:href=", "href=")
    svg = re.sub(r'\sid="', f' id="chart{number}-', svg)
    svg = re.sub(r"url\(#", f"url(#chart{number}-", svg)
    svg = re.sub(r'href="#', f'href="#chart{number}-', svg)
    svg = re.sub(r'\sd="[^"]*"', _short_path, svg)
    svg = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', svg, count=1)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    svg = re.sub(r' transform="rotate\(-?0 [^"]*"', "", svg)
    return re.sub(r'font(-size|-family)?: [^;"]*;? ?', "", svg)


def _short_path(match: re.Match[str]) -> str:
    """A path with tenths of a point and blanks instead of line breaks."""
    path = re.sub(r"(\.\d)\d+", r"\1", match[0])
    return re.sub(r"\s+", " ", path.replace("\n", " "))
