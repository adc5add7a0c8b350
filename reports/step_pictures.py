"""Pictures of single steps: all of them on the time axis, and a usual one beside the slowest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfdoctor.reports.text import brief, duration, sentence
from perfdoctor.reports.wording import page_words, worded
from perfdoctor.results.activity import StepParts, StepTimes

_STEP_LINES = 600  # steps that can be told apart on a wide screen


@dataclass(frozen=True, slots=True)
class StepsRow:
    """The steps of one rank on the time axis, each a line where it begins, as high as it is long.

    Attributes:
        top_s: the length at the upper border.
        usual: ordinary steps, as an SVG path in a drawing of 1000 by 100.
        long: long ones.
    """

    rank: int
    detail: str
    top_s: float
    usual: str
    long: str


@dataclass(frozen=True, slots=True)
class StepPicture:
    """Two steps of one rank, part by part, on one scale.

    Attributes:
        usual: name, where it begins and how wide it is in percent, number of its look.
        slowest: likewise.
        rows: name, seconds in each of them, and the difference, as words, and the number of its look.
    """

    rank: int
    usual_title: str
    slowest_title: str
    usual: tuple[tuple[str, float, float, int], ...]
    slowest: tuple[tuple[str, float, float, int], ...]
    rows: tuple[tuple[str, str, str, str, int], ...]


def steps_row(times: StepTimes, span_s: float) -> StepsRow:
    """The steps of a rank on a time axis of so many seconds."""
    words = page_words().WORDS
    top = max(times.lengths_s)
    long = sum(length > times.outlier_s for length in times.lengths_s)
    limit = duration(times.outlier_s)
    said = words["no_outliers"] if not long else words["outlier" if long == 1 else "outliers"]
    lines: dict[bool, list[str]] = {False: [], True: []}
    for start, length in _tallest(times):
        line = f"M{1000 * start / span_s:.1f} 100V{100 - 100 * length / top:.1f}"
        lines[length > times.outlier_s].append(line)
    detail = words["steps_detail"].format(
        count=len(times.starts_s),
        usual=duration(times.usual.length_s),
        top=duration(top),
        outliers=said.format(count=long, limit=limit),
    )
    if times.every is not None:
        detail += words["every"].format(every=times.every)
    return StepsRow(times.rank, detail, top, "".join(lines[False]), "".join(lines[True]))


def _tallest(times: StepTimes) -> Iterator[tuple[float, float]]:
    """Start and length of as many steps as can be told apart: of neighbours the longest."""
    steps = list(zip(times.starts_s, times.lengths_s, strict=True))
    together = -(-len(steps) // _STEP_LINES)
    for place in range(0, len(steps), together):
        yield max(steps[place : place + together], key=lambda step: step[1])


def step_picture(times: StepTimes) -> StepPicture:
    """A usual step and the slowest one, on the scale of the slowest."""
    words = page_words().WORDS
    names = list(dict.fromkeys(name for step in (times.usual, times.slowest) for name, _, _ in step.parts))
    looks = {name: number for number, name in enumerate(names)}
    usual, slowest = _by_part(times.usual), _by_part(times.slowest)
    rows = sorted(names, key=lambda name: usual.get(name, 0.0) - slowest.get(name, 0.0))
    scale = times.slowest.length_s or 1.0

    def placed(step: StepParts) -> tuple[tuple[str, float, float, int], ...]:
        return tuple(
            (sentence(brief(worded(part))), round(100 * start / scale, 2), round(100 * length / scale, 2), looks[part])
            for part, start, length in step.parts
        )

    return StepPicture(
        times.rank,
        words["usual_step"].format(number=times.usual.number, length=duration(times.usual.length_s)),
        words["slowest_step"].format(number=times.slowest.number, length=duration(times.slowest.length_s)),
        placed(times.usual),
        placed(times.slowest),
        tuple(
            (
                sentence(brief(worded(name))),
                duration(usual.get(name, 0.0)),
                duration(slowest.get(name, 0.0)),
                duration(slowest.get(name, 0.0) - usual.get(name, 0.0)),
                looks[name],
            )
            for name in rows
        ),
    )


def _by_part(step: StepParts) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, _, length in step.parts:
        found[name] = found.get(name, 0.0) + length
    return found
