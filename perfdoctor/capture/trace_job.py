"""Traces of all trainers of a job at once, each taken in the best way that serves for its process."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.capture.kineto_daemon import TRACE_S, daemon
from perfdoctor.capture.shared_folder import NoRoomError
from perfdoctor.capture.trace_check import GDB, KINETO, ladder, refused_inside, started_with, unfit
from perfdoctor.capture.trace_run import PATIENCE_S, TraceRun, wait_until
from perfdoctor.probes import Refusal
from perfdoctor.probes.inside.brief_trace import PROBE, PROBE_S, TRACE
from perfdoctor.probes.readers.gdb import PlacingError, place_line
from perfdoctor.probes.readers.procfs import is_running
from perfdoctor.probes.readers.remote_exec import AskingError, run_file
from perfdoctor.recording.clock import NS_PER_S, epoch_on_the_clock, now_ns
from perfdoctor.recording.schema import Profile, Sample, TraceCost, Unavailable

PROBE_NAME = "profile"
# So many ranks are traced: those of one machine with eight GPUs.
MOST_RANKS = 8
# How large a trace may become: about 10,000 operators with their kernels, or 30,000 without. The profiler then takes
# about half a second to stop and to write, for which the training waits (measured on one core: 28 ms for a MB).
TRACE_BYTES = 16_000_000
MOST_S = 5.0
# Where several ranks are to end at the same time, one may use so much more CPU time than would fit.
_SPARE = 4.0
# All ranks begin together, when each has seen that it is to.
_TOGETHER_NS = NS_PER_S // 5
# How long a trace may take to be written beyond the time that it spans.
_WRITING_S = 60.0


@dataclass
class _TracedProcess:
    """One process that a script traces from inside.

    Attributes:
        way: by which the script came in.
        stopped_s: for how long the process stood still for that, at most.
        held_ns: for how long the training waited for the first trace.
        refusal: why there will be no trace; None as long as there may be one.
    """

    pid: int
    way: str
    run: TraceRun
    stopped_s: float
    held_ns: int = 0
    refusal: Refusal | None = None

    def ready(self, name: str) -> bool:
        """Whether a trace has been written, or will not be."""
        reported = self.run.reported()
        return [name] == reported.get("written", [])[:1] or "done" in reported or not self.run.alive()

    def problem(self) -> Refusal | None:
        """Why there is no trace; None where there is or may be one."""
        reported = self.run.reported()
        if "refused" in reported:
            return refused_inside(*reported["refused"])
        if "broken" in reported:
            return Refusal(f"torch.profiler failed in process {self.pid}: {' '.join(reported['broken'])}"[:300], "")
        if not self.run.alive():
            return refused_inside("ending")
        return None


def trace(pids: Sequence[int], *, functions: bool = False) -> Iterator[Sample]:
    """Traces processes at the same time.

    Args:
        pids: the trainers of a job.
        functions: whether to record Python functions, too.

    Yields:
        A trace of each and what it cost, or why there is none.
    """
    if not pids:
        yield Unavailable(PROBE_NAME, "No process that trains was seen, so none was traced.", "")
    if len(pids) > MOST_RANKS:
        yield Unavailable(PROBE_NAME, f"Of {len(pids)} trainers the first {MOST_RANKS} were traced.", "")
    try:
        with ExitStack() as turns:
            ways = {}
            for pid in pids[:MOST_RANKS]:
                serving, refusals = _look_for_ways(pid, turns, functions=functions)
                if serving:
                    ways[pid] = serving
                yield from (Unavailable(PROBE_NAME, *refusal) for refusal in refusals)
            traced = list(_by_kineto([pid for pid, serving in ways.items() if KINETO in serving]))
            yield from traced
            found = {sample.pid for sample in traced}
            left = {pid: serving for pid, serving in ways.items() if pid not in found}
            yield from _by_script(left, functions=functions)
    except KeyboardInterrupt:
        yield Unavailable(PROBE_NAME, "The trace was interrupted.", "")
    except OSError as error:
        yield Unavailable(PROBE_NAME, f"The trace could not be taken: {error.strerror}.", "")


def _look_for_ways(pid: int, turns: ExitStack, *, functions: bool) -> tuple[list[str], list[Refusal]]:
    """The ways in which a process can be traced, the best first; if there are none, why, for each or for all."""
    turn = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    turns.enter_context(turn)
    try:
        # Only one can have this name, and it is free again when that one ends.
        turn.bind(f"\0perfdoctor-trace-{pid}")
    except OSError:
        return [], [Refusal(f"Another perfdoctor traces process {pid}.", "wait until it has ended")]
    try:
        refused = unfit(pid)
        rungs = ladder(pid, functions=functions)
    except OSError:
        return [], [refused_inside("ending")]
    if refused is not None:
        return [], [refused]
    serving = [rung.name for rung in rungs if rung.refusal is None]
    return serving, [] if serving else list(dict.fromkeys(rung.refusal for rung in rungs if rung.refusal is not None))


def _by_kineto(pids: Sequence[int]) -> Iterator[Profile | TraceCost]:
    """Traces of those that ask a daemon, as far as they come; the others are left to another way."""
    if not pids:
        return
    try:
        with daemon(pids, started_with(pids[0])) as ours:
            ours.trace_all()
            for client in ours.clients:
                if client.trace.exists():
                    yield _packed(client.pid, client.trace)
                    yield TraceCost(client.pid, KINETO, int(TRACE_S * NS_PER_S), 0, None)
    except (OSError, NoRoomError):
        return


def _by_script(ways: Mapping[int, Sequence[str]], *, functions: bool) -> Iterator[Sample]:
    """Traces of those that a script can be put into.

    Args:
        ways: that serve, by process, the best first.
        functions: whether to record Python functions, too.
    """
    with ExitStack() as open_runs:
        ranks = []
        for pid, serving in ways.items():
            begun = _begin(pid, [way for way in serving if way != KINETO], open_runs, functions=functions)
            if isinstance(begun, Refusal):
                yield Unavailable(PROBE_NAME, *begun)
            else:
                ranks.append(begun)
        _take_together(ranks)
        for rank in ranks:
            yield from _result(rank)


def _begin(pid: int, ways: Sequence[str], open_runs: ExitStack, *, functions: bool) -> _TracedProcess | Refusal:
    """Lets a process begin, in the first way that works."""
    ended = refused_inside("ending")
    refusal = Refusal("Kineto did not ask for a daemon in time.", "attach again later") if is_running(pid) else ended
    for way in ways:
        try:
            run = open_runs.enter_context(closing(TraceRun(pid, functions=functions)))
            stopped_s = place_line(pid, run.line) if way == GDB else run_file(pid, run.file)
            return _TracedProcess(pid, way, run, stopped_s)
        except (NoRoomError, PlacingError, AskingError) as error:
            refusal = Refusal(str(error), "")
        except OSError as error:
            refusal = Refusal(f"Process {pid} cannot be reached: {error.strerror}.", "")
    return refusal


def _take_together(ranks: Sequence[_TracedProcess]) -> None:
    """Lets all take a short trace, then one that begins at the same time in all."""
    wait_until(lambda: all("taken" in rank.run.reported() or not rank.run.alive() for rank in ranks), PATIENCE_S)
    for rank in ranks:
        if rank.run.withdraw():
            rank.refusal = refused_inside("busy" if rank.run.alive() else "ending")
    taken = [rank for rank in ranks if rank.refusal is None]
    wait_until(lambda: all(rank.ready(PROBE) for rank in taken), PATIENCE_S + _WRITING_S)
    going = [rank for rank in taken if rank.ready(PROBE) and rank.problem() is None]
    if not going:
        return
    begin_ns = now_ns() + _TOGETHER_NS
    # They must end together, too: whoever stops first is not there for the others, and would pass for a straggler.
    seconds = MOST_S if len(going) == 1 else min([MOST_S, *map(_fitting_s, going)])
    for rank in going:
        rank.held_ns = _held_ns(rank)
        rank.run.go(begin_ns, seconds, _fitting_cpu_s(rank) * (1 if len(going) == 1 else _SPARE))
    wait_until(lambda: all(rank.ready(TRACE) for rank in going), MOST_S + PATIENCE_S + _WRITING_S)
    wait_until(lambda: all("done" in rank.run.reported() or not rank.run.alive() for rank in going), PATIENCE_S)


def _fitting_cpu_s(rank: _TracedProcess) -> float:
    """In how much CPU time a trace does not become too large: it grows with what the process does, not with the time
    that passes. Not less than a hundredth of a second, for an idle process has no events."""
    used_s = max(float(rank.run.reported()["stopped"][2]), 0.01)
    return used_s * TRACE_BYTES / max(rank.run.probe_bytes(), 1)


def _fitting_s(rank: _TracedProcess) -> float:
    """How long that is, if it goes on as in the short trace."""
    reported = rank.run.reported()
    spanned_s = (int(reported["stopped"][0]) - int(reported["stopped"][1]) - int(reported["started"][0])) / NS_PER_S
    return _fitting_cpu_s(rank) * max(spanned_s, PROBE_S) / max(float(reported["stopped"][2]), 0.01)


def _held_ns(rank: _TracedProcess) -> int:
    """For how long the last trace held up the training at most: to start, to stop and to be written."""
    reported = rank.run.reported()
    return int(reported["started"][1]) + int(reported["stopped"][1]) + int(reported["written"][1])


def _result(rank: _TracedProcess) -> Iterator[Sample]:
    reported = rank.run.reported()
    refusal = rank.refusal or rank.problem()
    if refusal is None and reported.get("written", [])[:1] != [TRACE]:
        refusal = refused_inside("late")
    if refusal is not None:
        yield Unavailable(PROBE_NAME, *refusal)
        return
    try:
        yield _packed(rank.pid, rank.run.trace)
    except OSError as error:
        yield Unavailable(PROBE_NAME, f"The trace of process {rank.pid} cannot be read: {error.strerror}.", "")
        return
    traced_ns = int(reported["stopped"][0]) - int(reported["started"][0]) - int(reported["stopped"][1])
    held_ns = rank.held_ns + _held_ns(rank)
    yield TraceCost(rank.pid, rank.way, traced_ns, int(rank.stopped_s * NS_PER_S), held_ns)


def _packed(pid: int, file: Path) -> Profile:
    # Level 1 packs a trace nearly as well as level 9, in a tenth of the time.
    return Profile(pid, *epoch_on_the_clock(), gzip.compress(file.read_bytes(), 1))
