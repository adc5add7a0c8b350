"""One file to its summary: a function of its address, which runs in any process, on any machine.

That is a rank in at most 10 KB: what the merging of ranks needs, to the microsecond, and the names that take most time.

The ranks of a host's recording have as much each, for what rules read of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from perfdoctor.analysis.host_summary import HostSummary
from perfdoctor.cluster.files import File
from perfdoctor.cluster.packing import pack
from perfdoctor.diagnosis import NotExamined
from perfdoctor.messages import say
from perfdoctor.recording.gc_pause import gc_paused
from perfdoctor.recording.remote import at_hand
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.call_sites import NOT_SEEN, CallSites
from perfdoctor.traces.collectives import Collectives
from perfdoctor.traces.intervals import Floats
from perfdoctor.traces.kernel_stats import KernelTimes
from perfdoctor.traces.loop import WholeSteps
from perfdoctor.traces.rank import Rank

MOST_BYTES = 10_000  # of ten thousand ranks, a hundred megabytes
_NAMES = 4  # of each cause, one more than reports show
_LONGEST_NAME = 100  # characters; judgement
_KERNELS = 40  # that are compared with those of other ranks
_STEPS = 50  # the last ones, of which the lengths are kept; judgement
_PARTS = 4  # of a collective, between which its exposed time is taken to pass evenly
_FEWEST = 8  # collectives
_MOST = 300  # collectives: more never fit
_UNIT_NS = 100.0  # times are rounded to this, since round numbers pack better

_LAST_ONLY = NotExamined("ranks", say("cluster.last_collectives"), say("cluster.fewer_steps"))


def summarise(file: File) -> bytes:
    """What remains of a trace or of a recording: at most 10 KB for each rank in it.

    Returns:
        What ``perfdoctor.cluster.packing.unpack`` makes a ``Rank`` or a ``Host`` of.

    Raises:
        PerfDoctorError: it cannot be read, or holds no trace or recording.
    """
    with at_hand(file.address) as path:
        return _of_trace(path) if file.kind == "trace" else _of_recording(path)


def _of_trace(path: Path) -> bytes:
    from perfdoctor.traces.rank import summarize
    from perfdoctor.traces.reader import read_trace

    with gc_paused():
        return condense(summarize(read_trace(path)))


def _of_recording(path: Path) -> bytes:
    from perfdoctor.analysis.summarise_recording import summarise_recording
    from perfdoctor.recording.reader import Recording

    with Recording.open(path) as recording:
        return condense_host(summarise_recording(recording))


def condense(rank: Rank) -> bytes:
    """A rank, packed into at most ``MOST_BYTES``.

    Where its collectives do not fit, the last ones are kept, which other ranks have too: a profiler stops at the same
    step everywhere. They stand for the others.
    """
    kept = min(len(rank.collectives), _MOST)
    small = replace(
        rank,
        source=rank.source[-_LONGEST_NAME:],
        slices=[_rounded(amounts) for amounts in rank.slices],
        kernels=_largest(rank.kernels),
        call_sites=CallSites(_largest(rank.call_sites.operators), _largest(rank.call_sites.lines)),
        same_kernels=_longest(rank.same_kernels),
        loop=_last_steps(rank.loop),
    )
    packed = _packed(small, kept)
    while len(packed) > MOST_BYTES and kept > _FEWEST:
        kept = max(_FEWEST, min(kept - 1, int(0.95 * kept * MOST_BYTES / len(packed))))
        packed = _packed(small, kept)
    if len(packed) > MOST_BYTES:  # names of the job's own may be of any length and number
        small = replace(small, kernels={}, call_sites=CallSites(), same_kernels={}, loop=WholeSteps())
        packed = _packed(small, kept)
    return packed


def condense_host(host: HostSummary) -> bytes:
    """A host, packed into at most ``MOST_BYTES`` for each of its ranks.

    What advice is chosen by goes first, then files, lines and settings.
    """
    most = MOST_BYTES * max(1, len(host.accounts))
    packed = pack(host)
    without_advice = replace(
        host.case, below={}, python_lines={}, called_lines={}, loops=None, done_alone=None, operators={}
    )
    for kept in (without_advice, replace(without_advice, paths={}, lines={}, kernels={}, settings={})):
        if len(packed) > most:
            packed = pack(replace(host, case=kept))
    return packed


def _packed(rank: Rank, kept: int) -> bytes:
    """A rank with so many of its collectives."""
    missing = rank.missing if kept == len(rank.collectives) else (*rank.missing, _LAST_ONLY)
    return pack(replace(rank, collectives=_coarse(_last(rank.collectives, kept)), missing=missing))


def _rounded(amounts: Mapping[str, float]) -> Amounts[str]:
    return Amounts({cause: float(round(amount)) for cause, amount in amounts.items() if amount >= 1})


def _largest(by_cause: Mapping[str, Amounts[str]]) -> dict[str, Amounts[str]]:
    """The names that take most, and the time of all others together."""
    return {cause: _largest_of(amounts) for cause, amounts in by_cause.items()}


def _largest_of(amounts: Amounts[str]) -> Amounts[str]:
    ordered = sorted((name for name in amounts if name != NOT_SEEN), key=lambda name: -amounts[name])[:_NAMES]
    kept = Amounts({name[:_LONGEST_NAME]: float(round(amounts[name])) for name in ordered})
    kept[NOT_SEEN] = max(0.0, float(round(amounts.total)) - kept.total)
    return kept


def _longest(kernels: KernelTimes) -> KernelTimes:
    """Those that take most time in sum, under a digest of their names: they are only compared."""
    ordered = sorted(kernels, key=lambda kernel: -kernels[kernel][0] * kernels[kernel][1])[:_KERNELS]
    return {(blake2b(name.encode(), digest_size=4).hexdigest(), grid): kernels[name, grid] for name, grid in ordered}


def _last_steps(loop: WholeSteps) -> WholeSteps:
    return replace(
        loop,
        lengths=loop.lengths[-_STEPS:],
        phases={name: times[-_STEPS:] for name, times in loop.phases.items()},
        lines=[(line[:_LONGEST_NAME], part) for line, part in loop.lines],
    )


def _coarse(table: Collectives) -> Collectives:
    """With amounts in whole units; what went on beside a collective is kept at a few moments of it."""
    span = table.end - table.start
    moments = [table.start + span * part // _PARTS for part in range(_PARTS + 1)]
    at = np.array(sorted(set(np.concatenate(moments).tolist()))) if len(table) else np.zeros(0, dtype=np.int64)
    alone = np.interp(at, *table.alone) if len(table.alone[0]) else np.zeros(len(at))
    before, after = _whole(table.before), _whole(table.after)
    spent = np.flatnonzero(after.any(axis=0))
    return replace(
        table,
        split=_whole(table.split),
        alone=(at.astype(np.float64), _whole(alone)),
        before=before[:, spent].astype(np.float32),
        after=after[:, spent].astype(np.float32),
        causes=tuple(table.causes[place] for place in spent.tolist()),
    )


def _whole(amounts: Floats) -> Floats:
    return np.asarray((amounts / _UNIT_NS).round() * _UNIT_NS, dtype=np.float64)


def _last(table: Collectives, count: int) -> Collectives:
    """The last collectives, in the order in which they start."""
    first = len(table) - count
    return Collectives(
        keys=table.keys[first:],
        kinds=table.kinds[first:],
        group_size=table.group_size[first:],
        start=table.start[first:],
        end=table.end[first:],
        size=table.size[first:],
        split=table.split[first:],
        alone=table.alone,
        blocking=table.blocking[first:],
        before=table.before[first:],
        after=table.after[first:],
        left_out=first,
        causes=table.causes,
    )
