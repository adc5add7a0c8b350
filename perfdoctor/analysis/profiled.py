"""What torch.profiler saw in a few steps, joined to what was marked and sampled in many.

A trace is exact about operators and the GPU, and blind to what loader workers do and to other ranks. On a GPU it shows
what an ordinary step is composed of; ``perfdoctor.attribution.traced_steps`` joins that to what was sampled. On a CPU
the profiler slows down the very thing that it measures, so there the samples' account stands, and the trace adds
numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import attribute, attribute_long_steps
from perfdoctor.attribution.traced_steps import ObservedSteps, TracedSteps, join_traced
from perfdoctor.diagnosis import INSIDE, OUTSIDE, TRACED, Evidence, NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Profile
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.long_steps import longest_ordinary
from perfdoctor.timeline.steps import Steps

# Most recordings have no profile, and what reads traces takes a tenth of a second of CPU time to load.
if TYPE_CHECKING:
    from perfdoctor.traces.rank import Rank

Named = Mapping[str, tuple[tuple[str, float], ...]]


@dataclass(frozen=True)
class Profiled:
    """The profiles in a recording.

    Attributes:
        ranks: by process, what remains of its trace.
        numbers: what could be measured, as a mean over the ranks.
        kernels: cause to the kernels that take longest, and their fractions of its time.
        lines: cause to the job's own functions that brought it about, likewise, where functions were recorded.
        operators: cause to the operators that cost most of it, and their fractions of its time.
        not_examined: profiles that could not be read, and why.
    """

    ranks: Mapping[int, Rank] = field(default_factory=dict)
    numbers: Mapping[str, Evidence] = field(default_factory=dict)
    kernels: Named = field(default_factory=dict)
    lines: Named = field(default_factory=dict)
    operators: Named = field(default_factory=dict)
    not_examined: tuple[NotExamined, ...] = ()

    def covers(self, accounts: Sequence[Account]) -> bool:
        """Whether the account of each trainer can be that of its GPU."""
        ranks = [self.ranks.get(account.trainer.pid) for account in accounts]
        return bool(ranks) and all(rank is not None and rank.devices and not rank.silence for rank in ranks)

    def join(self, job: JobTimeline, sampled: Sequence[Account]) -> list[Account]:
        """The trainers' accounts: ordinary steps as their GPUs' traces have them, and the rest as sampled."""
        from perfdoctor.traces.rank_merge import merge_ranks

        ranks = [self.ranks[account.trainer.pid] for account in sampled]
        traced = merge_ranks(ranks, [account.rank for account in sampled]).accounts
        joined = []
        for rank, account, one, excess in zip(ranks, traced, sampled, attribute_long_steps(job), strict=True):
            steps = job.steps.get(one.trainer.pid)
            observed = ObservedSteps(one, excess, len(steps.all) if steps else 0)
            joined.append(join_traced(_traced_steps(rank, account, steps), observed))
        return joined

    def steps(self, pid: int) -> dict[str, Any]:
        """The profiled steps of a process, and their phases; {} where there are none."""
        return self.ranks[pid].loop.summary() if pid in self.ranks else {}

    def lengths_ns(self, pid: int) -> list[int]:
        """How long each of them took."""
        return list(map(int, self.ranks[pid].loop.lengths)) if pid in self.ranks else []


def account_for(job: JobTimeline) -> tuple[str, list[Account], Profiled]:
    """Where the time of a job's trainers went, what that rests on, and what was profiled."""
    accounts, profiled = attribute(job), read_profiles(job.profiles, job.steps)
    if profiled.covers(accounts):
        return TRACED, profiled.join(job, accounts), profiled
    return level_of(job), accounts, profiled


def level_of(job: JobTimeline) -> str:
    """Inside only if every trainer marked its steps: one of them may be whom the others wait for."""
    trainers = job.processes.trainers
    inside = bool(trainers) and all(trainer.pid in job.steps and job.steps[trainer.pid].all for trainer in trainers)
    return INSIDE if inside else OUTSIDE


def read_profiles(rows: Sequence[Profile], marked: Container[int] = ()) -> Profiled:
    """Reads the traces that were recorded, if there are any.

    Args:
        rows: the profiles.
        marked: processes whose steps are known: by them is taken back what the profiler made longer, elsewhere by what
            the trace tells of it.
    """
    if not rows:
        return Profiled()
    from perfdoctor.traces.coverage import missing_steps
    from perfdoctor.traces.kernel_stats import top_named
    from perfdoctor.traces.rank import gather_numbers

    ranks, unread = {}, []
    for row in rows:
        try:
            ranks[row.pid] = _read(row, undisturbed=row.pid not in marked)
        except PerfDoctorError as error:
            unread.append(NotExamined("profile", str(error), error.next_move))
    return Profiled(
        ranks,
        numbers=gather_numbers(list(ranks.values())),
        kernels=top_named(rank.kernels for rank in ranks.values()),
        lines=top_named(rank.call_sites.lines for rank in ranks.values()),
        operators=top_named(rank.call_sites.operators for rank in ranks.values()),
        not_examined=(*unread, *(missing_steps(pid) for pid, rank in ranks.items() if not rank.loop.summary())),
    )


def _read(row: Profile, *, undisturbed: bool) -> Rank:
    from perfdoctor.traces.rank import summarize
    from perfdoctor.traces.reader import read_trace

    try:
        with tempfile.TemporaryDirectory(prefix="perfdoctor-") as folder:
            file = Path(folder, "profile.json.gz")
            file.write_bytes(row.trace)
            return summarize(read_trace(file), undisturbed=undisturbed)
    except OSError as error:
        raise PerfDoctorError(
            f"There is no room to unpack the trace of torch.profiler: {error.strerror}.", hint="free some space in /tmp"
        ) from None


def _traced_steps(rank: Rank, account: Account, steps: Steps | None) -> TracedSteps:
    """The traced steps of a rank, of which those are long that would be among the observed ones.

    Args:
        rank: what remains of its trace.
        account: of the trace's window.
        steps: the observed ones; None where none were marked.
    """
    from perfdoctor.traces.account import slice_edges

    window, edges = rank.window, slice_edges(rank.window).astype(np.float64)
    ordinary = np.ones(len(edges) - 1)
    if steps is None or not steps.all or not window.steps:
        return TracedSteps(account, ordinary.tolist(), 0.0)
    lengths = np.array([end - start for start, end in window.steps], dtype=np.float64)
    # A profiler makes all of them longer.
    most = longest_ordinary(steps.lengths_ns) / float(np.median(steps.lengths_ns)) * float(np.median(lengths))
    for (start, end), length in zip(window.steps, lengths.tolist(), strict=True):
        if length > most:
            inside = np.minimum(edges[1:], end) - np.maximum(edges[:-1], start)
            ordinary -= inside.clip(0) / np.diff(edges)
    return TracedSteps(account, ordinary.clip(0, 1).tolist(), window.length / NS_PER_S / len(lengths))
