"""What remains of the recording of one host: little enough to hold those of thousands at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from perfdoctor.analysis.coverage import not_examined, why_no_verdict
from perfdoctor.analysis.from_recording import gather_case, level_of, step_summaries
from perfdoctor.analysis.profiled import read_profiles
from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import attribute
from perfdoctor.diagnosis import TRACED, NotExamined
from perfdoctor.messages import Text
from perfdoctor.recording.reader import Recording, collector_paused
from perfdoctor.rules.case import Case
from perfdoctor.stuck.follow import find_still
from perfdoctor.timeline.amounts import sum_by_place
from perfdoctor.timeline.job import JobTimeline

# The time that was watched is cut into so many slices, as that of a trace is.
_SLICES = 20


@dataclass(frozen=True, slots=True)
class HostSummary:
    """One host of a job.

    Attributes:
        source: name of its recording.
        name: of the host.
        version: of perfdoctor that recorded.
        torch: version of PyTorch in the first trainer; "" where it was not read.
        started: when the recording began, by the host's clock (ISO 8601).
        world: ranks of the whole job, as far as the host knows.
        level: what its accounts rest on.
        accounts: of its trainers, in seconds, in slices of its time.
        case: what rules read of it.
        silence: why nothing can be said of it; "" if something can.
        steps: by process, as reports show them.
        not_examined: what was not.
    """

    source: str
    name: str
    version: str
    torch: str
    started: str
    world: int
    level: str
    accounts: tuple[Account, ...]
    case: Case
    silence: Text
    steps: Mapping[int, dict[str, object]]
    not_examined: tuple[NotExamined, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of its ranks, as the host knows them."""
        return tuple(account.trainer.rank or 0 for account in self.accounts)


@collector_paused()
def summarise_recording(recording: Recording) -> HostSummary:
    """Accounts for a recording, and keeps what the diagnosis of a job on several hosts needs of it.

    Raises:
        PerfDoctorError: it is damaged.
    """
    job = JobTimeline(recording)
    level, accounts, profiled = level_of(job), attribute(job), read_profiles(job.profiles)
    if profiled.covers(accounts):
        level, accounts = TRACED, profiled.join(job, accounts)
    silent = why_no_verdict(job, accounts, find_still({"": job}))
    first = accounts[0].trainer.pid if accounts else 0
    return HostSummary(
        source=recording.path.name,
        name=recording.meta.get("host", ""),
        version=recording.meta.get("perfdoctor", ""),
        torch=recording.facts.get((f"pid:{first}", "torch_version"), ""),
        started=recording.meta.get("started", ""),
        world=job.processes.world_size,
        level=level,
        accounts=tuple(map(_in_slices, accounts)),
        case=gather_case(job, accounts, profiled),
        silence=silent.summary if silent is not None else "",
        steps=step_summaries(job),
        not_examined=not_examined(job, traced=False),
    )


def _in_slices(account: Account) -> Account:
    """What is needed of an account later: causes and waits, in few slices."""
    first, last = min(account.block_numbers, default=0), max(account.block_numbers, default=0)
    width = max(1.0, (last - first + 1) / _SLICES)
    own = sum_by_place((int((block - first) / width), amounts) for block, amounts in account.own.items())
    waits = sum_by_place(
        ((int((block - first) / width), rank), amounts) for (block, rank), amounts in account.waits.items()
    )
    return Account(account.trainer, own=own, waits=waits, phases=account.phases)


def renumbered(host: HostSummary, numbers: Mapping[int, int]) -> HostSummary:
    """The same host with other numbers for its ranks."""

    def changed(account: Account) -> Account:
        trainer = replace(account.trainer, rank=numbers[account.trainer.rank or 0])
        waits = {(block, numbers.get(rank, rank)): amounts for (block, rank), amounts in account.waits.items()}
        return replace(account, trainer=trainer, waits=waits)

    return replace(host, accounts=tuple(map(changed, host.accounts)))
