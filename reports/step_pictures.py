"""Pictures of single steps: all of them on the time axis, and a usual one beside the slowest, with workers and GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfdoctor.reports.bands import Entry, phase_name
from perfdoctor.reports.palette import Palette
from perfdoctor.reports.text import brief, duration, percent, sentence, shown_cause
from perfdoctor.reports.wording import label, page_words
from perfdoctor.results.activity import GPU, TRAINER, Activity, Lane, LanePart, StepPart, StepParts, StepTimes

_STEP_LINES = 600  # steps that can be distinguished on a wide screen
_SHADES = 6  # that the style sheet has
# A step that is so many times shorter than another one cannot be read on its scale.
_TOO_SMALL = 3

Row = tuple[str, str, str, str, str]
"""Name, seconds in the usual step and in the slowest, the difference, and the class of the shade; "" for none."""


@dataclass(frozen=True, slots=True)
class StepsRow:
    """The steps of one rank on the time axis, each a line where it begins, as high as it is long.

    Attributes:
        top_s: the length at the upper border.
        usual: ordinary steps, as an SVG path in a drawing of 1000 by 100.
        long: long ones.
    """

    rank: int
    name: str
    detail: str
    top_s: float
    usual: str
    long: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a lane.

    Attributes:
        left: where it begins, in percent of the picture's width.
        width: likewise.
        height: in percent of the lane.
        bottom: what lies below it, likewise.
        look: class of its colour or shade.
    """

    name: str
    left: float
    width: float
    height: float
    bottom: float
    look: str


@dataclass(frozen=True, slots=True)
class ShownLane:
    """The trainer, a worker or a GPU during a step.

    Attributes:
        role: ``trainer``, ``worker`` or ``gpu``.
        name: which one.
        of_one: it is one worker's and not the mean of all.
        says: all of it in words.
        unseen: why nothing is drawn; "" where something is.
    """

    role: str
    name: str
    of_one: bool
    says: str
    unseen: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step.

    Attributes:
        larger: as so many times as long it is drawn; 1 where both steps have one scale.
        lanes: the trainer's first.
    """

    title: str
    larger: int
    lanes: tuple[ShownLane, ...]


@dataclass(frozen=True, slots=True)
class StepPicture:
    """Two steps of one rank, on one scale as far as both can be read there.

    Attributes:
        steps: the usual one and the slowest.
        legend: what the colours of the workers' lanes stand for.
        grain: how often workers were looked at; "" where none are drawn.
    """

    rank: int
    steps: tuple[ShownStep, ShownStep]
    legend: tuple[Entry, ...]
    grain: str
    rows: tuple[Row, ...]


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
    detail = words["passes_detail" if times.passes else "steps_detail"].format(
        count=len(times.starts_s),
        usual=duration(times.usual.length_s),
        top=duration(top),
        outliers=said.format(count=long, limit=limit),
    )
    if times.every is not None:
        detail += words["every_passes" if times.passes else "every"].format(every=times.every)
    name = words["passes_row" if times.passes else "steps_row"]
    return StepsRow(times.rank, name, detail, top, "".join(lines[False]), "".join(lines[True]))


def _tallest(times: StepTimes) -> Iterator[tuple[float, float]]:
    """Start and length of as many steps as can be distinguished: of neighbours the longest."""
    steps = list(zip(times.starts_s, times.lengths_s, strict=True))
    together = -(-len(steps) // _STEP_LINES)
    for place in range(0, len(steps), together):
        yield max(steps[place : place + together], key=lambda step: step[1])


def step_picture(times: StepTimes, palette: Palette, shades: Mapping[str, str]) -> StepPicture:
    """A usual step and the slowest one, on the scale of the slowest; ``shades`` are those of the page."""
    words, both = page_words().WORDS, (times.usual, times.slowest)
    usual, slowest = (
        ShownStep(
            words[title].format(number=step.number, length=duration(step.length_s)),
            larger,
            tuple(_lanes(step, (times.slowest.length_s or 1.0) / larger, shades, palette)),
        )
        for step, title, larger in zip(both, ("usual_step", "slowest_step"), (_larger(times), 1), strict=True)
    )
    workers = [lane for step in both for lane in step.lanes if lane.role != GPU]
    causes = dict.fromkeys(part.cause for step in both for part in step.parts if part.cause)
    causes |= dict.fromkeys(part.what for lane in workers for part in lane.parts)
    every = max((lane.every_s for lane in workers if lane.every_s is not None), default=None)
    return StepPicture(
        times.rank,
        (usual, slowest),
        tuple(Entry(palette.of(cause), _title(cause)) for cause in sorted(causes, key=lambda cause: not cause)),
        "" if every is None else words["gantt_grain"].format(every=duration(every)),
        (*_rows_of_parts(*both, shades, palette), *_rows_of_workers(*both)),
    )


def shades_of(activity: Activity) -> dict[str, str]:
    """The shade of each phase, the strongest for what takes most of all time, then of the steps that are drawn.

    A GPU's has that of the trainer's.
    """
    over_time: dict[str, float] = {}
    for track in activity.phases:
        for phase, shares in track.shares.items():
            over_time[phase] = over_time.get(phase, 0.0) + sum(shares) * track.bin_s
    steps = [step for times in activity.steps for step in (times.usual, times.slowest)]
    in_steps: dict[str, float] = {}
    for part in (part for step in steps for part in step.parts if not part.cause):
        in_steps[part.phase] = in_steps.get(part.phase, 0.0) + part.length_s
    names = dict.fromkeys(sorted(over_time, key=lambda name: -over_time[name]))
    names |= dict.fromkeys(sorted(in_steps, key=lambda name: -in_steps[name]))
    names |= dict.fromkeys(
        part.what for step in steps for lane in step.lanes if lane.role == GPU for part in lane.parts if part.what
    )
    return {name: f"p{number % _SHADES}" for number, name in enumerate(names)}


def _larger(times: StepTimes) -> int:
    """By how much a usual step is drawn larger, so that its parts can be distinguished."""
    times_longer = times.slowest.length_s / times.usual.length_s if times.usual.length_s else 1.0
    return int(times_longer) if times_longer >= _TOO_SMALL else 1


def _lanes(step: StepParts, scale: float, shades: Mapping[str, str], palette: Palette) -> Iterator[ShownLane]:
    """The trainer's lane, then those of others."""
    drawn = tuple(
        _piece(_name_of(part), LanePart(part.phase, part.start_s, part.length_s), scale, _shade(part, shades, palette))
        for part in step.parts
    )
    spent = {_name_of(part): length for part, length in _by_part(step).items()}
    yield ShownLane(TRAINER, "", True, _says(spent, step.length_s), "", drawn)
    for lane in step.lanes:
        spent = {}
        for part in lane.parts:
            name = _lane_name(lane, part.what)
            spent[name] = spent.get(name, 0.0) + part.fraction * part.length_s
        pieces = tuple(
            _piece(_lane_name(lane, one.what), one, scale, _class_of(lane, one.what, shades, palette))
            for one in lane.parts
        )
        unseen = "" if lane.parts else _why_unseen(lane)
        yield ShownLane(lane.role, _short(lane), bool(lane.name), unseen or _says(spent, step.length_s), unseen, pieces)


def _piece(name: str, part: LanePart, scale: float, look: str) -> Piece:
    left, width = round(100 * part.start_s / scale, 2), round(100 * part.length_s / scale, 2)
    return Piece(name, left, width, round(100 * part.fraction), round(100 * part.base), look)


def _class_of(lane: Lane, what: str, shades: Mapping[str, str], palette: Palette) -> str:
    if lane.role != GPU:
        return f"c {palette.of(what)}"
    return shades.get(what, "busy")


def _lane_name(lane: Lane, what: str) -> str:
    if lane.role != GPU:
        return _title(what)
    return phase_name(what) if what else str(page_words().WORDS["busy"])


def _short(lane: Lane) -> str:
    """Which worker or GPU it is."""
    words = page_words().WORDS
    if lane.role == GPU:
        return brief(lane.name.partition(":")[2])
    if lane.name:
        return str(words["pid"].format(pid=brief(lane.name)))
    return str(words["mean_of_steps"].format(count=lane.steps)) if lane.parts else ""


def _why_unseen(lane: Lane) -> str:
    words = page_words().WORDS
    return str(words["not_seen"] if lane.every_s is None else words["too_rarely"].format(every=duration(lane.every_s)))


def _says(spent: Mapping[str, float], length_s: float) -> str:
    """What took how much of a step, largest first."""
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    items = tuple(f"{percent(amount / (length_s or 1.0))} {name}" for name, amount in ordered)
    return label("sequence", items=items)


def _title(cause: str) -> str:
    return shown_cause(cause) or str(page_words().WORDS["idle"])


def _name_of(part: StepPart) -> str:
    """What a part of a step is: what was seen there, or else the phase."""
    return sentence(_title(part.cause)) if part.cause else phase_name(part.phase)


def _shade(part: StepPart, shades: Mapping[str, str], palette: Palette) -> str:
    return f"c {palette.of(part.cause)}" if part.cause else shades[part.phase]


def _rows_of_parts(usual: StepParts, slowest: StepParts, shades: Mapping[str, str], palette: Palette) -> Iterator[Row]:
    """What each part of the trainer's takes; what differs most comes first."""
    before, after = _by_part(usual), _by_part(slowest)
    for part in sorted({**before, **after}, key=lambda part: before.get(part, 0.0) - after.get(part, 0.0)):
        yield _row(_name_of(part), before.get(part, 0.0), after.get(part, 0.0), _shade(part, shades, palette))


def _rows_of_workers(usual: StepParts, slowest: StepParts) -> Iterator[Row]:
    """How long workers are busy, in the mean of those that were seen."""
    before, after = _busy(usual), _busy(slowest)
    if before is not None and after is not None:
        yield _row(page_words().WORDS["workers_busy"], before, after, "")


def _busy(step: StepParts) -> float | None:
    seen = [lane.parts for lane in step.lanes if lane.role != GPU and lane.parts]
    return (
        sum(part.fraction * part.length_s for parts in seen for part in parts if part.what) / len(seen)
        if seen
        else None
    )


def _row(name: str, usual: float, slowest: float, look: str) -> Row:
    return name, duration(usual), duration(slowest), duration(slowest - usual), look


def _by_part(step: StepParts) -> dict[StepPart, float]:
    """The length of all parts that are called alike, whenever they began."""
    found: dict[StepPart, float] = {}
    for part in step.parts:
        alike = StepPart("" if part.cause else part.phase, 0.0, 0.0, part.cause)
        found[alike] = found.get(alike, 0.0) + part.length_s
    return found
