"""What threads did over time, as SVG: a band per thread, in every bin stacked by cause.

A drawing is as wide as it has bins and 100 high, so a script reads the percentage of a cause in a bin as the height of
its part there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfdoctor.diagnosis import Finding
from perfdoctor.reports.palette import Palette
from perfdoctor.reports.text import brief, lower_first, percent, sentence, shown_cause
from perfdoctor.reports.wording import label, page_words, worded
from perfdoctor.results.activity import TRAINER, Activity, Track

_MOST_BORDERS = 120  # more run into each other
_SAID = 4  # causes of a band that are named for those who cannot see it


@dataclass(frozen=True, slots=True)
class Layer:
    """One cause in a band.

    Attributes:
        look: class of its colour.
        path: its parts, as an SVG path.
    """

    look: str
    title: str
    path: str


@dataclass(frozen=True, slots=True)
class Band:
    """One thread's row.

    Attributes:
        trainer: it is a trainer's, not a worker's.
        bins: width of the drawing.
        label: all of it in words.
        layers: from below.
        unseen: where it was not sampled, as an SVG path.
    """

    trainer: bool
    rank: int
    pid: int
    bins: int
    label: str
    layers: tuple[Layer, ...]
    unseen: str


@dataclass(frozen=True, slots=True)
class When:
    """One cause over time, as a drawing of so many bins.

    Attributes:
        says: the same in words.
    """

    bins: int
    look: str
    path: str
    says: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the legend."""

    look: str
    title: str


def bands(activity: Activity, palette: Palette) -> list[Band]:
    """All tracks, in their order."""
    order = _order(activity.tracks)
    return [_band(track, order, palette) for track in activity.tracks]


@dataclass(frozen=True, slots=True)
class PhasesRow:
    """The phases of one trainer's steps over time, stacked as causes are.

    Attributes:
        bins: width of the drawing.
        label: all of it in words.
        layers: from below, each with its part of the time.
        borders: where steps begin, as an SVG path in a drawing as wide; "" where they are unknown or too close.
    """

    rank: int
    bins: int
    label: str
    layers: tuple[tuple[Layer, str], ...]
    borders: str


def phases_rows(activity: Activity, shades: Mapping[str, str]) -> list[PhasesRow]:
    """The phases of each trainer whose steps are drawn."""
    order = _order(activity.phases)
    begins = {times.rank: times.starts_s for times in activity.steps}
    return [_phases_row(track, order, shades, begins.get(track.rank, ())) for track in activity.phases]


def _phases_row(track: Track, order: Sequence[str], shades: Mapping[str, str], begins_s: Sequence[float]) -> PhasesRow:
    bins, means = len(track.seen), _means(track)
    layers = tuple(
        (Layer(shades[name], phase_name(name), path), percent(means[name])) for name, path in _stacked(track, order)
    )
    at = [begin / track.bin_s for begin in begins_s] if len(begins_s) <= _MOST_BORDERS else []
    borders = "".join(f"M{place:.1f} 0v100" for place in at if place <= bins)
    said = label("sequence", items=tuple(f"{share} {lower_first(layer.title)}" for layer, share in layers))
    return PhasesRow(track.rank, bins, said, layers, borders)


def phase_name(phase: str) -> str:
    """What a phase is called, as a title."""
    return sentence(brief(worded(phase)))


def legend(activity: Activity, palette: Palette) -> list[Entry]:
    """What the colours stand for, in the order in which they are stacked from below."""
    return [Entry(palette.of(cause), shown_cause(cause)) for cause in _order(activity.tracks)]


def when(activity: Activity, finding: Finding, palette: Palette) -> When | None:
    """When a finding's cause took its time, in the trainer that it lies in or else in the first one; None if unseen."""
    tracks = [track for track in activity.tracks if track.role == TRAINER and finding.cause in track.shares]
    track = next((track for track in tracks if track.rank in finding.ranks), next(iter(tracks), None))
    if track is None:
        return None
    shares = track.shares[finding.cause]
    path = "".join(_boxes([(0, round(100 * share)) for share in shares]))
    words = page_words().WORDS
    whose = words["of_one_rank"].format(rank=track.rank) if len(tracks) > 1 else words["of_the_trainer"]
    first, second, third = (percent(part) for part in _thirds(shares, track.seen))
    says = words["when"].format(whose=whose, first=first, second=second, third=third)
    return When(len(shares), palette.of(finding.cause), path, says) if path else None


def _thirds(shares: Sequence[float], seen: Sequence[bool]) -> Iterator[float]:
    """The mean in each third of the watched time; 0 where nothing was seen."""
    for third in range(3):
        part = slice(third * len(shares) // 3, (third + 1) * len(shares) // 3)
        yield sum(shares[part]) / max(1, sum(seen[part]))


def _order(tracks: Sequence[Track]) -> list[str]:
    """The same order for all tracks: what takes most of the trainers' time lies at the bottom."""
    total: dict[str, float] = {}
    for track in tracks:
        weight = 1.0 if track.role == TRAINER else 1e-3
        for cause, shares in track.shares.items():
            total[cause] = total.get(cause, 0.0) + weight * sum(shares) * track.bin_s
    return sorted(total, key=lambda cause: -total[cause])


def _band(track: Track, order: Sequence[str], palette: Palette) -> Band:
    bins = len(track.seen)
    layers = [Layer(palette.of(cause), shown_cause(cause), path) for cause, path in _stacked(track, order)]
    unseen = "".join(_boxes([(0, 0 if seen else 100) for seen in track.seen]))
    return Band(track.role == TRAINER, track.rank, track.pid, bins, _label(track), tuple(layers), unseen)


def _stacked(track: Track, order: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What a track has, one upon the other, each as an SVG path; without what is too little to be drawn."""
    floors = [0.0] * len(track.seen)
    for name in order:
        if name in track.shares:
            tops = [floor + share for floor, share in zip(floors, track.shares[name], strict=True)]
            path = "".join(_boxes([(round(100 * a), round(100 * b)) for a, b in zip(floors, tops, strict=True)]))
            if path:
                yield name, path
            floors = tops


def _boxes(spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Boxes from one height to another, counted from below; neighbours of the same heights as one."""
    start = 0
    for place in range(1, len(spans) + 1):
        if place == len(spans) or spans[place] != spans[start]:
            low, high = spans[start]
            width = place - start
            if high > low:
                yield f"M{start} {100 - high}h{width}v{high - low}h-{width}z"
            start = place


def _means(track: Track) -> dict[str, float]:
    """Means over the bins in which it was seen."""
    seen = sum(track.seen) or 1
    return {name: sum(shares) / seen for name, shares in track.shares.items()}


def _label(track: Track) -> str:
    first = sorted(_means(track).items(), key=lambda item: -item[1])[:_SAID]
    items = tuple(f"{percent(mean)} {lower_first(shown_cause(cause))}" for cause, mean in first)
    return label("sequence", items=items)
