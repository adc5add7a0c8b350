"""What torch.profiler saw in a few steps, joined to what was marked and sampled in many.

A trace is exact about operators and the GPU, and blind to what loader workers do and to other ranks. On a GPU it tells
where the device's time went, so it replaces the samples' account; where it only sees that the trainer fetches a batch
or waits in a collective, the samples tell why. On a CPU the profiler slows down the very thing that it measures, so
there the samples' account stands, and the trace adds numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfdoctor.amounts import Amounts
from perfdoctor.clock import NS_PER_S
from perfdoctor.diagnosis import Evidence, NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.ledger import Ledger
from perfdoctor.recording import Recording
from perfdoctor.samples import Profile
from perfdoctor.traces.account import RankAccount, account_for
from perfdoctor.traces.evidence import measure_traces
from perfdoctor.traces.model import Trace
from perfdoctor.traces.reader import read_trace

# In a trace all of these are one: the trainer fetches a batch.
FETCHING = "cpu.input_preprocessing"
INPUT = frozenset((
    FETCHING, "cpu.worker_startup", "cpu.data_transfer", "cpu.lock_contention", "io.storage_read", "io.network_read",
))  # fmt: skip
WAITING = "communication.unattributed_wait"


class Profiled:
    """The profiles in a recording.

    Attributes:
        accounts: by process.
        not_examined: profiles that could not be read, and why.
    """

    def __init__(self, recording: Recording) -> None:
        self.accounts: dict[int, RankAccount] = {}
        self.not_examined: list[NotExamined] = []
        for row in recording.rows(Profile):
            try:
                self.accounts[row.pid] = account_for(_read(row))
            except PerfDoctorError as error:
                self.not_examined.append(NotExamined("profile", str(error), error.hint))

    def numbers(self) -> dict[str, Evidence]:
        """What could be measured, as a mean over the ranks."""
        return measure_traces(list(self.accounts.values()))

    def covers(self, ledgers: Sequence[Ledger]) -> bool:
        """Whether the account of each trainer can be that of its GPU."""
        pids = {ledger.trainer.pid for ledger in ledgers}
        return bool(pids) and all(pid in self.accounts and self.accounts[pid].devices for pid in pids)

    def retell(self, ledger: Ledger) -> Ledger:
        """A trainer's account with its GPU's time as the trace has it, and the reasons of waits as sampled."""
        new = Ledger(ledger.trainer, phases=ledger.phases, targets=ledger.targets, lines=ledger.lines)
        sampled = Amounts.summed(ledger.own.values())
        fetching = Amounts({cause: sampled[cause] for cause in INPUT if sampled[cause]} or {FETCHING: 1.0}).fractions()
        waiting = _waits(ledger).fractions()
        slices = [part for part in self.accounts[ledger.trainer.pid].slices if part.total > 0]
        for block, part in enumerate(slices):
            scale = ledger.seconds / len(slices) / part.total
            own = new.own[block] = Amounts({cause: amount * scale for cause, amount in part.items()})
            fetched = own.pop(FETCHING, 0.0)
            for cause, share in fetching.items():
                own[cause] += share * fetched
            waited = own.pop(WAITING, 0.0) if waiting else 0.0
            for (rank, cause), share in waiting.items():
                new.waits.setdefault((block, rank), Amounts())[cause] += share * waited
        return new

    def summary(self) -> dict[str, Any]:
        """How many steps were profiled in the first process, and how long they took."""
        if not self.accounts:
            return {}
        steps = next(iter(self.accounts.values())).window.steps
        lengths = sorted(end - start for start, end in steps)
        return {"count": len(steps), "median_s": lengths[len(lengths) // 2] / NS_PER_S} if steps else {}


def _read(row: Profile) -> Trace:
    try:
        with tempfile.TemporaryDirectory(prefix="perfdoctor-") as folder:
            file = Path(folder, "profile.json.gz")
            file.write_bytes(row.trace)
            return read_trace(file)
    except OSError as error:
        raise PerfDoctorError(
            f"There is no room to unpack the trace of torch.profiler: {error.strerror}.", hint="free some space in /tmp"
        ) from None


def _waits(ledger: Ledger) -> Amounts[tuple[int, str]]:
    """Seconds that were waited for a rank, by it and the cause in it."""
    found: Amounts[tuple[int, str]] = Amounts()
    for (_, rank), amounts in ledger.waits.items():
        for cause, amount in amounts.items():
            found[rank, cause] += amount
    return found
