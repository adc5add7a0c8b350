"""The account of one trainer's wall time: its own causes, and those of the ranks that it waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perfdoctor.amounts import Amounts
from perfdoctor.timeline.code_location import PREPARES

if TYPE_CHECKING:
    from perfdoctor.attribution.parts import Part  # it needs recordings, which traces do without
    from perfdoctor.timeline.code_location import Place
    from perfdoctor.timeline.processes import Process


@dataclass
class Ledger:
    """The account of one trainer, in seconds.

    Attributes:
        own: per second of the recording, causes that lie in this trainer.
        waits: per second of the recording and rank that was waited for, causes that lie in that rank.
        awaited: of ``own``, what loader workers did while the trainer waited for them.
        phases: by phase.
        targets: by cause and target (a file, a socket).
        lines: by cause and source line.
        fetching: in which the main thread prepared batches itself.
        sampling: in which it drew the indices of batches.
        compiling: in which torch.compile compiled its model.
        interpreter: of the machine code that ran around the arithmetic, the fraction that was Python's interpreter and
            not torch's dispatch; None where it was not looked at.
        libraries: of what counts as Python overhead, the fraction in libraries other than torch's; None likewise.
    """

    trainer: Process
    own: dict[int, Amounts[str]] = field(default_factory=dict)
    waits: dict[tuple[int, int], Amounts[str]] = field(default_factory=dict)
    awaited: dict[int, Amounts[str]] = field(default_factory=dict)
    phases: Amounts[str] = field(default_factory=Amounts)
    targets: dict[str, Amounts[str]] = field(default_factory=dict)
    lines: dict[str, Amounts[str]] = field(default_factory=dict)
    fetching: float = 0.0
    sampling: float = 0.0
    compiling: float = 0.0
    interpreter: float | None = None
    libraries: float | None = None

    def add(self, block: int, seconds: float, place: Place, parts: Iterable[Part]) -> None:
        """Books a span of time."""
        self.phases[place.phase] += seconds
        if place.detail in ("fetch", PREPARES):
            self.fetching += seconds
        elif place.detail == "sampling":
            self.sampling += seconds
        elif place.detail == "compile":
            self.compiling += seconds
        for part in parts:
            amount = part.weight * seconds
            if part.rank is None:
                self.own.setdefault(block, Amounts())[part.cause] += amount
                if part.awaited:
                    self.awaited.setdefault(block, Amounts())[part.cause] += amount
            else:
                self.waits.setdefault((block, part.rank), Amounts())[part.cause] += amount
            if part.target:
                self.targets.setdefault(part.cause, Amounts())[part.target] += amount
            if part.line:
                self.lines.setdefault(part.cause, Amounts())[part.line] += amount

    def rename(self, old: str, new: str) -> None:
        """Books all of one cause under another."""
        for amounts in (*self.own.values(), *self.waits.values()):
            if old in amounts:
                amounts[new] += amounts.pop(old)
        for detail in (self.targets, self.lines):
            if old in detail:
                detail[new] = Amounts.summed([detail.pop(old), detail.get(new, {})])

    def recharge(self, old: str, new: str, part: float) -> None:
        """Books a part of what workers were waited for under another cause."""
        for block, amounts in self.awaited.items():
            moved = part * amounts[old]
            for account in (amounts, self.own[block]):
                account[old] -= moved
                account[new] += moved

    @property
    def seconds(self) -> float:
        """All booked time."""
        return self.phases.total

    @property
    def block_numbers(self) -> set[int]:
        """Seconds of the recording in which anything was booked."""
        return {*self.own, *(block for block, _ in self.waits)}

    def block(self, number: int) -> Amounts[str]:
        """All causes in one second of the recording."""
        waited = [amounts for (block, _), amounts in self.waits.items() if block == number]
        return Amounts.summed([self.own.get(number, {}), *waited])

    def late_block(self, number: int) -> Amounts[str]:
        """Causes in other ranks that this one waited for, in one second of the recording."""
        return Amounts.summed(amounts for (block, _), amounts in self.waits.items() if block == number)

    def causes(self) -> Amounts[str]:
        """All causes."""
        return Amounts.summed([*self.own.values(), *self.waits.values()])

    def waited_for(self) -> Amounts[int]:
        """Seconds of waiting by rank."""
        found: Amounts[int] = Amounts()
        for (_, rank), amounts in self.waits.items():
            found[rank] += amounts.total
        return found

    def by_rank(self) -> Amounts[tuple[str, int]]:
        """Seconds by cause and the rank in which it lies."""
        found: Amounts[tuple[str, int]] = Amounts()
        for amounts in self.own.values():
            for cause, amount in amounts.items():
                found[cause, self.trainer.rank or 0] += amount
        for (_, rank), amounts in self.waits.items():
            for cause, amount in amounts.items():
                found[cause, rank] += amount
        return found


def settle_waits(ledgers: Sequence[Ledger]) -> None:
    """Charges waiting for a rank to what that rank does more of, not to what it does at that very instant.

    A late rank does its ordinary work while the others wait for it: the delay came before. What it spends more time
    on than the waiting rank does is the reason (TraceML's and Ascend's rule: the culprit's local excess). As far as
    there is no excess, the instant's own activity stands. What ranks exchange with each other makes none of them late.
    """
    own = {ledger.trainer.rank or 0: Amounts.summed(map(_local, ledger.own.values())) for ledger in ledgers}
    for ledger in ledgers:
        mine = own[ledger.trainer.rank or 0]
        for rank, waited in ledger.waited_for().items():
            excess = Amounts({cause: max(0.0, amount - mine[cause]) for cause, amount in own[rank].items()})
            if excess.total <= 0 or waited <= 0:
                continue
            charged = min(1.0, excess.total / waited)
            for (block, other), amounts in ledger.waits.items():
                if other == rank:
                    new = {cause: amount * (1 - charged) for cause, amount in amounts.items()}
                    moved = {cause: part * charged * amounts.total for cause, part in excess.fractions().items()}
                    ledger.waits[block, other] = Amounts.summed([new, moved])


def _local(amounts: Mapping[str, float]) -> dict[str, float]:
    return {cause: amount for cause, amount in amounts.items() if not cause.startswith("communication.")}


def find_culprits(ledgers: Sequence[Ledger]) -> dict[str, tuple[int, ...]]:
    """Cause to the ranks in which most of it lies; empty for a single rank."""
    if len(ledgers) < 2:
        return {}
    by_rank = Amounts.summed(ledger.by_rank() for ledger in ledgers)
    found: dict[str, tuple[int, ...]] = {}
    for cause in {cause for cause, _ in by_rank}:
        ranks = {rank: amount for (name, rank), amount in by_rank.items() if name == cause}
        found[cause] = tuple(sorted(rank for rank, amount in ranks.items() if amount >= 0.25 * sum(ranks.values())))
    return found
