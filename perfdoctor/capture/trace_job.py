"""Traces of all trainers of a job at once, each taken in the way that serves for its process."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from perfdoctor.capture.trace_check import Way, refused_inside, way_for
from perfdoctor.capture.trace_run import PATIENCE_S, NoRoomError, TraceRun, wait_until
from perfdoctor.probes import Refusal
from perfdoctor.probes.inside.brief_trace import PROBE, PROBE_S, TRACE
from perfdoctor.probes.readers.gdb import PlacingError
from perfdoctor.recording.clock import NS_PER_S, epoch_on_the_clock, now_ns
from perfdoctor.recording.schema import Profile, Sample, TraceCost, Unavailable

PROBE_NAME = "profile"
# So many ranks are traced: those of one machine with eight GPUs.
MOST_RANKS = 8
# How large a trace may become: about 10,000 operators with their kernels, or 30,000 without. The profiler then takes
# about half a second to stop and to write, for which the training waits (measured on one core: 28 ms for a MB).
TRACE_BYTES = 16_000_000
LEAST_S, MOST_S = 0.1, 5.0
# All ranks begin together, when each has seen that it is to.
_TOGETHER_NS = NS_PER_S // 5
# How long a trace may take to be written beyond the time that it spans.
_WRITING_S = 60.0
_INTERRUPTED = Refusal("The trace was interrupted.", "")


@dataclass
class _Rank:
    """One process while it is traced."""

    pid: int
    way: Way
    run: TraceRun
    stopped_s: float = 0.0
    held_ns: int = 0
    refusal: Refusal | None = field(default=None)

    def ready(self, name: str) -> bool:
        """Whether a trace has been written, or will not be."""
        told = self.run.told()
        return [name] == told.get("written", [])[:1] or "done" in told or not self.run.alive()

    def problem(self) -> Refusal | None:
        """Why there is no trace."""
        told = self.run.told()
        if "refused" in told:
            return refused_inside(*told["refused"])
        if "broken" in told:
            return Refusal(f"torch.profiler failed in process {self.pid}: {' '.join(told['broken'])}"[:300], "")
        if not self.run.alive():
            return refused_inside("ending")
        return None


def trace(pids: Sequence[int]) -> Iterator[Sample]:
    """Traces processes at the same time.

    Args:
        pids: the trainers of a job.

    Yields:
        A trace of each and what it cost, or why there is none.
    """
    if not pids:
        yield Unavailable(PROBE_NAME, "No process that trains was seen, so none was traced.", "")
    if len(pids) > MOST_RANKS:
        yield Unavailable(PROBE_NAME, f"Of {len(pids)} trainers the first {MOST_RANKS} were traced.", "")
    with ExitStack() as open_runs:
        ranks: list[_Rank] = []
        try:
            for pid in pids[:MOST_RANKS]:
                begun = _begin(pid, open_runs)
                if isinstance(begun, Refusal):
                    yield Unavailable(PROBE_NAME, *begun)
                else:
                    ranks.append(begun)
            _take_together(ranks)
        except KeyboardInterrupt:
            yield Unavailable(PROBE_NAME, *_INTERRUPTED)
            return
        for rank in ranks:
            yield from _result(rank)


def _begin(pid: int, open_runs: ExitStack) -> _Rank | Refusal:
    """Lets a process begin; its own way, and no two at a time."""
    turn = _take_turn(pid)
    if turn is None:
        return Refusal(f"Another perfdoctor traces process {pid}.", "wait until it has ended")
    open_runs.enter_context(turn)
    way = way_for(pid)
    if isinstance(way, Refusal):
        return way
    try:
        run = open_runs.enter_context(closing(TraceRun(pid)))
        stopped_s = way.place(pid, run.line)
    except (NoRoomError, PlacingError) as error:
        return Refusal(str(error), "")
    except OSError as error:
        return Refusal(f"Process {pid} cannot be reached: {error.strerror}.", "")
    return _Rank(pid, way, run, stopped_s)


def _take_turn(pid: int) -> socket.socket | None:
    """One perfdoctor traces a process at a time: who takes this name, which is free again when that one ends."""
    turn = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        turn.bind(f"\0perfdoctor-trace-{pid}")
    except OSError:
        turn.close()
        return None
    return turn


def _take_together(ranks: Sequence[_Rank]) -> None:
    """Lets all take a short trace, then one that begins at the same time in all and is as long."""
    wait_until(lambda: all("taken" in rank.run.told() or not rank.run.alive() for rank in ranks), PATIENCE_S)
    for rank in ranks:
        if rank.run.withdraw():
            rank.refusal = refused_inside("busy")
    taken = [rank for rank in ranks if rank.refusal is None]
    wait_until(lambda: all(rank.ready(PROBE) for rank in taken), PATIENCE_S + _WRITING_S)
    going = [rank for rank in taken if rank.ready(PROBE) and rank.problem() is None]
    if not going:
        return
    seconds = min(map(_fitting_s, going))
    begin_ns = now_ns() + _TOGETHER_NS
    for rank in going:
        rank.held_ns = _held_ns(rank)
        rank.run.go(begin_ns, seconds)
    wait_until(lambda: all(rank.ready(TRACE) for rank in going), seconds + PATIENCE_S + _WRITING_S)
    wait_until(lambda: all("done" in rank.run.told() or not rank.run.alive() for rank in going), PATIENCE_S)


def _fitting_s(rank: _Rank) -> float:
    """How long a trace may be that does not become too large."""
    told = rank.run.told()
    spanned_s = max((int(told["stopped"][0]) - int(told["started"][0])) / NS_PER_S, PROBE_S)
    return min(MOST_S, max(LEAST_S, spanned_s * TRACE_BYTES / max(rank.run.probe_bytes(), 1)))


def _held_ns(rank: _Rank) -> int:
    """For how long the last trace held up the training: to start, to stop and to be written."""
    told = rank.run.told()
    return int(told["started"][1]) + int(told["stopped"][1]) + int(told["written"][1])


def _result(rank: _Rank) -> Iterator[Sample]:
    told = rank.run.told()
    refusal = rank.refusal or rank.problem()
    if refusal is None and told.get("written", [])[:1] != [TRACE]:
        refusal = refused_inside("late")
    if refusal is not None:
        yield Unavailable(PROBE_NAME, *refusal)
        return
    try:
        packed = gzip.compress(rank.run.trace.read_bytes(), 1)
    except OSError as error:
        yield Unavailable(PROBE_NAME, f"The trace of process {rank.pid} cannot be read: {error.strerror}.", "")
        return
    yield Profile(rank.pid, *epoch_on_the_clock(), packed)
    traced_ns = int(told["stopped"][0]) - int(told["started"][0]) - int(told["stopped"][1])
    held_ns = rank.held_ns + _held_ns(rank)
    yield TraceCost(rank.pid, rank.way.name, traced_ns, int(rank.stopped_s * NS_PER_S), held_ns)
