"""What torch.profiler saw in a few steps, joined to what was marked and sampled in many.

A trace is exact about operators and the GPU, and blind to what loader workers do and to other ranks. On a GPU it shows
where the device's time went, so it replaces the samples' account; where it only sees that the trainer fetches a batch
or waits in a collective, the samples show why. On a CPU the profiler slows down the very thing that it measures, so
there the samples' account stands, and the trace adds numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdoctor.attribution.account import Account
from perfdoctor.causes import INPUT_CAUSES
from perfdoctor.diagnosis import Evidence, NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Profile
from perfdoctor.timeline.amounts import Amounts

# Most recordings have no profile, and what reads traces takes a tenth of a second of CPU time to load.
if TYPE_CHECKING:
    from perfdoctor.traces.rank import Rank

# In a trace all of these are one: the trainer fetches a batch.
FETCHING = "cpu.input_preprocessing"
WAITING = "communication.unattributed_wait"

Named = Mapping[str, tuple[tuple[str, float], ...]]


@dataclass(frozen=True)
class Profiled:
    """The profiles in a recording.

    Attributes:
        ranks: by process, what remains of its trace.
        numbers: what could be measured, as a mean over the ranks.
        kernels: cause to the kernels that take longest, and their fractions of its time.
        operators: cause to the operators that cost most of it, and their fractions of its time.
        not_examined: profiles that could not be read, and why.
    """

    ranks: Mapping[int, Rank] = field(default_factory=dict)
    numbers: Mapping[str, Evidence] = field(default_factory=dict)
    kernels: Named = field(default_factory=dict)
    operators: Named = field(default_factory=dict)
    not_examined: tuple[NotExamined, ...] = ()

    def covers(self, accounts: Sequence[Account]) -> bool:
        """Whether the account of each trainer can be that of its GPU."""
        ranks = [self.ranks.get(account.trainer.pid) for account in accounts]
        return bool(ranks) and all(rank is not None and rank.devices and not rank.silence for rank in ranks)

    def with_gpu_time(self, accounts: Sequence[Account]) -> list[Account]:
        """The trainers' accounts with their GPUs' time as the traces have it, and the reasons of waits as sampled."""
        from perfdoctor.traces.rank_merge import merge_ranks

        ranks = [self.ranks[account.trainer.pid] for account in accounts]
        traced = merge_ranks(ranks, [account.trainer.rank or 0 for account in accounts]).accounts
        return [_joined(one, sampled) for one, sampled in zip(traced, accounts, strict=True)]

    def summary(self) -> dict[str, Any]:
        """How many steps were profiled in the first process, and how long they took."""
        for rank in self.ranks.values():
            if lengths := sorted(end - start for start, end in rank.window.steps):
                return {"count": len(lengths), "median_s": lengths[len(lengths) // 2] / NS_PER_S}
        return {}


def read_profiles(rows: Sequence[Profile]) -> Profiled:
    """Reads the traces that were recorded, if there are any."""
    if not rows:
        return Profiled()
    from perfdoctor.traces.kernel_stats import top_named
    from perfdoctor.traces.rank import gather_numbers

    ranks, unread = {}, []
    for row in rows:
        try:
            ranks[row.pid] = _read(row)
        except PerfDoctorError as error:
            unread.append(NotExamined("profile", str(error), error.hint))
    return Profiled(
        ranks,
        numbers=gather_numbers(list(ranks.values())),
        kernels=top_named(rank.kernels for rank in ranks.values()),
        operators=top_named(rank.call_sites.operators for rank in ranks.values()),
        not_examined=tuple(unread),
    )


def _read(row: Profile) -> Rank:
    from perfdoctor.traces.rank import summarize
    from perfdoctor.traces.reader import read_trace

    try:
        with tempfile.TemporaryDirectory(prefix="perfdoctor-") as folder:
            file = Path(folder, "profile.json.gz")
            file.write_bytes(row.trace)
            return summarize(read_trace(file))
    except OSError as error:
        raise PerfDoctorError(
            f"There is no room to unpack the trace of torch.profiler: {error.strerror}.", hint="free some space in /tmp"
        ) from None


def _joined(traced: Account, sampled: Account) -> Account:
    shares = sampled.phases.fractions()
    joined = Account(
        sampled.trainer,
        waits={place: Amounts(amounts) for place, amounts in traced.waits.items()},
        phases=Amounts({phase: share * traced.seconds for phase, share in shares.items()}),
        targets=sampled.targets,
        lines=sampled.lines,
    )
    own = Amounts.summed(sampled.own.values())
    fetching = Amounts({cause: own[cause] for cause in INPUT_CAUSES if own[cause]} or {FETCHING: 1.0}).fractions()
    waiting = _waits(sampled).fractions()
    for block, amounts in traced.own.items():
        kept = joined.own[block] = Amounts(amounts)
        fetched = kept.pop(FETCHING, 0.0)
        for cause, share in fetching.items():
            kept[cause] += share * fetched
        waited = kept.pop(WAITING, 0.0) if waiting else 0.0
        for (rank, cause), share in waiting.items():
            joined.waits.setdefault((block, rank), Amounts())[cause] += share * waited
    return joined


def _waits(account: Account) -> Amounts[tuple[int, str]]:
    """Seconds that were waited for a rank, by it and the cause in it."""
    found: Amounts[tuple[int, str]] = Amounts()
    for (_, rank), amounts in account.waits.items():
        for cause, amount in amounts.items():
            found[rank, cause] += amount
    return found
