"""How the clocks of several hosts stand to each other.

Ranks enter a collective when they come to it, and leave it together: where each of them was seen to leave one, these
instants are the same on all hosts. Steps never take exactly equally long, so the series of one host fits that of
another at one offset only. The clocks' own time of day, which NTP keeps together, says about where; it may be wrong by
seconds, and then the series say so. Where they say nothing (collectives that are shorter than the time between two
samples, or hosts that by the time of day were watched hours apart), it stands, and how far it may be off is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.attribution.collectives import CollectiveWaits
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S, epoch_of
from perfdoctor.recording.other_clock import ClockOffset
from perfdoctor.timeline.job import JobTimeline

Floats = npt.NDArray[np.float64]

# Offsets are tried in steps of this: a tenth of the time between two samples or less.
_GRID_NS = 2_000_000
# How far a wait may lie from the one that it is taken for.
_NEAR_NS = 60_000_000
# A drift is looked for in pieces of this length, if there are several.
_PIECE_NS = 60 * NS_PER_S


def clock_offsets(hosts: Sequence[JobTimeline]) -> list[ClockOffset]:
    """How the clock of each host stands to that of the first one.

    Args:
        hosts: the job as it was watched on each of its hosts, each on its own clock.
    """
    first = hosts[0]
    left = [_left_collectives(job) for job in hosts]
    return [_offset(first, left[0], job, own) for job, own in zip(hosts, left, strict=True)]


def _offset(first: JobTimeline, theirs: Floats, job: JobTimeline, own: Floats) -> ClockOffset:
    clock, reference = (one.recording.meta.get("clock", "") for one in (job, first))
    if job is first or (clock and clock == reference):
        return ClockOffset(shared=True)
    by_day = epoch_of(first.recording.meta) - epoch_of(job.recording.meta)
    found = _fit(own - by_day, theirs)
    if found is None:
        return ClockOffset(by_day, error_ns=None)
    begin, end = job.span
    starts = range(begin, end - _PIECE_NS // 2, _PIECE_NS) if end - begin >= 2 * _PIECE_NS else ()
    pieces = [own[(own[:, 0] >= start) & (own[:, 0] < start + _PIECE_NS)] for start in starts]
    fitted = [(piece, fit) for piece in pieces if (fit := _fit(piece - by_day - found[0], theirs))]
    if len(fitted) < 2:
        return ClockOffset(by_day + round(found[0]), error_ns=round(found[1]))
    at = [float(piece.mean()) - begin for piece, _ in fitted]
    drift, ahead = np.polyfit(at, [fit[0] for _, fit in fitted], 1)
    error = max(fit[1] for _, fit in fitted)
    return ClockOffset(by_day + round(found[0] + ahead), begin, float(drift), round(error))


def _left_collectives(job: JobTimeline) -> Floats:
    """When trainers were seen in a collective for the last time, and when out of it for the first: a row for each."""
    waits = CollectiveWaits(job)
    found = []
    for trainer in job.processes.trainers:
        times = job.threads.main_times(trainer.pid)
        held = [waits.holds(job.observe(trainer, time)) for time in times]
        found += [
            (before, after)
            for before, after, was, is_now in zip(times, times[1:], held, held[1:], strict=False)
            if was and not is_now
        ]
    return np.array(sorted(found), dtype=np.float64).reshape(-1, 2)


def _fit(own: Floats, theirs: Floats) -> tuple[float, float] | None:
    """By how much one series of instants is later than the other, and how far that may be off; None if unknown.

    Args:
        own: between when and when each of the instants was, in ns.
        theirs: the same of the other series.
    """
    reach = round(thresholds.CLOCKS_APART_S * NS_PER_S / _GRID_NS)
    own, theirs = _near_each_other(own, theirs, reach * _GRID_NS)
    if min(len(own), len(theirs)) < thresholds.FEWEST_MEETINGS:
        return None
    origin = min(own[0, 0], theirs[0, 0])
    size = int((max(own[:, 1].max(), theirs[:, 1].max()) - origin) / _GRID_NS) + 2 * reach + 2
    one, other = (_density(series - origin, size) for series in (own, theirs))
    fits = np.fft.irfft(np.fft.rfft(one, 2 * size) * np.conj(np.fft.rfft(other, 2 * size)), 2 * size)
    lags = np.arange(-reach, reach + 1)
    fits = fits[lags]
    near = round(_NEAR_NS / _GRID_NS)
    best = int(np.argmax(fits))
    elsewhere = np.abs(lags - lags[best]) > near
    by_chance = float(np.mean(fits[elsewhere]) + thresholds.CLOCK_FIT * np.std(fits[elsewhere]))
    if fits[best] < max(by_chance, thresholds.CLOCK_FITS_ALONE * np.max(fits[elsewhere])):
        return None
    return _refined(own, theirs, float(lags[best]) * _GRID_NS)


def _near_each_other(own: Floats, theirs: Floats, reach_ns: float) -> tuple[Floats, Floats]:
    """The instants of either series to which the other one has some that are no farther away; none where all are."""
    if not len(own) or not len(theirs):
        return own, theirs
    begin, end = max(own[0, 0], theirs[0, 0]) - reach_ns, min(own[:, 1].max(), theirs[:, 1].max()) + reach_ns
    near = [series[(series[:, 1] >= begin) & (series[:, 0] <= end)] for series in (own, theirs)]
    return near[0], near[1]


def _density(spans: Floats, size: int) -> Floats:
    """How likely an instant lies in each step of the grid, less the mean."""
    found = np.zeros(size)
    for begin, end in spans / _GRID_NS:
        first, last = int(begin), max(int(begin) + 1, int(np.ceil(end)))
        found[first:last] += 1.0 / (last - first)
    return np.asarray(found - found.mean())


def _refined(own: Floats, theirs: Floats, lag: float) -> tuple[float, float]:
    """The offset by the instants that belong together, and twice its standard error."""
    middles, others = own.mean(axis=1) - lag, theirs.mean(axis=1)
    places = np.clip(np.searchsorted(others, middles), 1, len(others) - 1)
    nearest = np.where(
        np.abs(others[places] - middles) < np.abs(others[places - 1] - middles), others[places], others[places - 1]
    )
    apart = (middles - nearest)[np.abs(middles - nearest) <= _NEAR_NS]
    if len(apart) < 2:
        return lag, float(_NEAR_NS)
    return lag + float(np.median(apart)), 2 * float(np.std(apart)) / np.sqrt(len(apart))
