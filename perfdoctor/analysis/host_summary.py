"""What is kept of the recording of one host: little enough to hold those of thousands at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from perfdoctor.attribution.account import Account
from perfdoctor.diagnosis import NotExamined
from perfdoctor.messages import Text
from perfdoctor.rules.case import Case


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
        numbered: a launcher or torch says which ranks it has; otherwise they are counted from 0, as on every such host.
        run: what all ranks of this run have alike, and those of another run have not; () if nothing shows it.
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
    numbered: bool
    run: tuple[str, ...]
    level: str
    accounts: tuple[Account, ...]
    case: Case
    silence: Text
    steps: Mapping[int, dict[str, object]]
    not_examined: tuple[NotExamined, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of its ranks, as the host knows them."""
        return tuple(account.rank for account in self.accounts)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """From when to when it was watched, by the host's clock; None where the recording does not say it."""
        try:
            begin = datetime.strptime(self.started, "%Y-%m-%dT%H:%M:%S%z")
        except ValueError:
            return None
        return begin, begin + timedelta(seconds=self.case.watched_s)


def renumbered(host: HostSummary, numbers: Mapping[int, int]) -> HostSummary:
    """The same host with other numbers for its ranks."""

    def changed(account: Account) -> Account:
        trainer = replace(account.trainer, rank=numbers[account.rank])
        waits = {(block, numbers.get(rank, rank)): amounts for (block, rank), amounts in account.waits.items()}
        return replace(account, trainer=trainer, waits=waits)

    return replace(host, accounts=tuple(map(changed, host.accounts)))
