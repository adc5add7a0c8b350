"""The account of one trainer's wall time: its own causes, and those of the ranks that it waited for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from perfdoctor.attribution.activities import Activities
from perfdoctor.attribution.mix_of_lines import CodeOfLines, overhead_of_lines
from perfdoctor.causes import BANDWIDTH, MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.by_function import owner_of
from perfdoctor.timeline.amounts import Amounts, sum_by_place, summed_by_block
from perfdoctor.timeline.code_location import HOOK, is_beside

if TYPE_CHECKING:
    from perfdoctor.attribution.share import Share  # it needs recordings, which traces do without
    from perfdoctor.timeline.code_location import CodeLocation
    from perfdoctor.timeline.processes import Process

K = TypeVar("K", str, tuple[str, str])
_CALLED_BACK = "called back"  # of the backward pass, what is code of the job's own
_FORWARD, _BACKWARD, _OPTIMIZER = ("forward", "loss"), "backward", "optimizer"
_NOTHING = 1e-9  # seconds: what is left of a sum that was taken away again


class Sampled(NamedTuple):
    """One sample of a process.

    Attributes:
        time_ns: when it was taken.
        causes: the seconds that it stands for, by cause.
        phase: that a trainer was in.
        late: of these seconds, those that a trainer waited for other ranks.
    """

    time_ns: int
    causes: Amounts[str]
    phase: str = ""
    late: Mapping[int, float] = MappingProxyType({})


@dataclass
class Account:
    """The account of one trainer, in seconds.

    Attributes:
        own: per second of the recording, causes that lie in this trainer.
        waits: per second of the recording and rank that was waited for, causes that lie in that rank.
        awaited: of ``own``, what loader workers did while the trainer waited for them.
        phases: by phase.
        targets: by cause and target (a file, a socket).
        lines: by cause and source line.
        passes: of ``lines``, what lies in the model's passes and the optimizer's step, by cause and phase.
        afterwards: of ``lines``, what lies below all of the model's passes and leads to no backward pass, by cause;
            arithmetic under the model's, whatever it counts for.
        activities: what it is at, whatever the time counts for.
        interpreter: of the machine code that ran around the arithmetic, the fraction that was Python's interpreter and
            not torch's dispatch; None where it was not sampled.
        libraries: of what counts as Python overhead, the fraction in libraries other than torch's; None likewise.
        outside_torch: functions of the job's own (``perfdoctor.metrics.by_function.owner_of``) that spend most of their
            time in Python's interpreter or in libraries other than torch, and that part of it.
        samples: what was attributed, sample by sample, before any pass over the account; empty for a trace.
        sampled: how many samples these stand for.
    """

    trainer: Process
    own: dict[int, Amounts[str]] = field(default_factory=dict)
    waits: dict[tuple[int, int], Amounts[str]] = field(default_factory=dict)
    awaited: dict[int, Amounts[str]] = field(default_factory=dict)
    phases: Amounts[str] = field(default_factory=Amounts)
    targets: dict[str, Amounts[str]] = field(default_factory=dict)
    lines: dict[str, Amounts[str]] = field(default_factory=dict)
    passes: dict[tuple[str, str], Amounts[str]] = field(default_factory=dict)
    afterwards: dict[str, Amounts[str]] = field(default_factory=dict)
    activities: Activities = field(default_factory=Activities)
    interpreter: float | None = None
    libraries: float | None = None
    outside_torch: Mapping[str, float] = field(default_factory=dict)
    samples: list[Sampled] = field(default_factory=list)
    sampled: int = 0

    def add(self, block: int, seconds: float, location: CodeLocation, shares: Sequence[Share]) -> None:
        """Attributes a span of time."""
        self.phases[location.part_of_step] += seconds
        self.activities.add(seconds, location, shares)
        for share in shares:
            amount = share.weight * seconds
            if share.rank is None:
                self.own.setdefault(block, Amounts())[share.cause] += amount
                if share.awaited:
                    self.awaited.setdefault(block, Amounts())[share.cause] += amount
            else:
                self.waits.setdefault((block, share.rank), Amounts())[share.cause] += amount
            if share.target:
                self.targets.setdefault(share.cause, Amounts())[share.target] += amount
            if share.line:
                self.lines.setdefault(share.cause, Amounts())[share.line] += amount
                if is_beside(location) and not location.precedes_model:
                    cause = MODEL_COMPUTE if share.beside else share.cause
                    self.afterwards.setdefault(cause, Amounts())[share.line] += amount
                phase = "loss" if location.leads_to_backward else location.phase
                phase = _CALLED_BACK if location.called_back else phase
                if phase in (*_FORWARD, _BACKWARD, _CALLED_BACK, _OPTIMIZER) and location.detail != HOOK:
                    self.passes.setdefault((share.cause, phase), Amounts())[share.line] += amount

    def with_backward_at_forward(self, causes: Iterable[str]) -> Account:
        """The same account with what the backward pass computes at the lines of the forward pass that called for it.

        Autograd runs, for each operation of the forward pass, the one that belongs to it. The line that starts the
        backward pass has no part in how many there are, and what other libraries do is no operation.

        Args:
            causes: what goes with the operations that a model is made of.
        """
        lines = dict(self.lines)
        for cause in causes:
            backward = self.passes.get((cause, _BACKWARD), Amounts())
            called = Amounts.summed(self.passes.get((cause, phase), {}) for phase in _FORWARD)
            _, forward = _apart(called, self.outside_torch)
            if backward and forward:
                times = backward.total / forward.total
                gone = {line: -amount for line, amount in backward.items()}
                moved = Amounts.summed([lines[cause], gone, {line: times * part for line, part in forward.items()}])
                lines[cause] = Amounts({line: amount for line, amount in moved.items() if amount > _NOTHING})
        return replace(self, lines=lines)

    def with_mix_of_lines(self, seen: CodeOfLines, operators: str) -> Account:
        """The same account with overhead and what operators do at the lines that were seen to run either.

        A line's time stays what it is: what it gains of the overhead, it gives away of the operators'. Where arithmetic
        is none of the model's, it counts as overhead whatever runs, and stays there.

        Args:
            seen: what certainly ran at lines.
            operators: what their running counts for: arithmetic, or launching.
        """
        mixed = (PYTHON_OVERHEAD, operators)
        if not any(seen) or any(cause not in self.lines for cause in mixed):
            return self
        computed = self.afterwards.get(operators, Amounts())
        beside = {line for line, time in computed.items() if time > self.lines[operators][line] + _NOTHING}
        of_overhead, of_operators = (_but(self.lines[cause], beside) for cause in mixed)
        parts = overhead_of_lines(of_overhead, of_operators, seen)

        def apart(detail: dict[K, Amounts[str]], *both: K) -> None:
            before = [detail.get(key, Amounts()) for key in both]
            times = {line: time for line, time in Amounts.summed(before).items() if line in parts}
            own = {line: parts[line] * time for line, time in times.items() if parts[line] > _NOTHING}
            rest = {line: (1 - parts[line]) * time for line, time in times.items() if parts[line] < 1 - _NOTHING}
            for key, old, new in zip(both, before, (own, rest), strict=True):
                detail[key] = Amounts.summed([_but(old, parts), new])

        lines, passes, afterwards = dict(self.lines), dict(self.passes), dict(self.afterwards)
        apart(lines, *mixed)
        apart(afterwards, *mixed)
        for phase in {phase for cause, phase in passes if cause in mixed}:
            apart(passes, (PYTHON_OVERHEAD, phase), (operators, phase))
        return replace(self, lines=lines, passes=passes, afterwards=afterwards)

    def of_updates(self, cause: str) -> Mapping[str, float]:
        """Of a cause's lines, what lies in the optimizer's step."""
        return self.passes.get((cause, _OPTIMIZER), {})

    def computed_beside(self) -> Mapping[str, float]:
        """The lines of arithmetic below the model's passes, as far as it counts as overhead of the job's own code."""
        return self.afterwards.get(MODEL_COMPUTE, {}) if self.activities.seconds["beside"] else {}

    def in_passes(self) -> set[str]:
        """The lines that the model's passes and the optimizer's step were seen at."""
        return {line for lines in self.passes.values() for line in lines}

    def moved(self, cause: str, parts: Mapping[str, float]) -> Account:
        """The same account with all of one cause under others; its files and lines go with it.

        Args:
            cause: whose time it is.
            parts: the part of it that each gets, summing to 1; one may be that cause itself.
        """

        def shared(amounts: Mapping[str, float]) -> Amounts[str]:
            kept = {other: amount for other, amount in amounts.items() if other != cause}
            amount = amounts.get(cause, 0.0)
            return Amounts.summed([kept, {to: part * amount for to, part in parts.items() if part * amount}])

        def joined(detail: Mapping[str, Amounts[str]]) -> dict[str, Amounts[str]]:
            rest = {other: amounts for other, amounts in detail.items() if other != cause}
            going = {to: _scaled(detail[cause], part * detail[cause].total) for to, part in parts.items() if part}
            return rest | {to: Amounts.summed([rest.get(to, {}), amounts]) for to, amounts in going.items()}

        return replace(
            self,
            own={block: shared(amounts) for block, amounts in self.own.items()},
            waits={key: shared(amounts) for key, amounts in self.waits.items()},
            awaited={block: shared(amounts) for block, amounts in self.awaited.items()},
            targets=joined(self.targets) if cause in self.targets else self.targets,
            lines=joined(self.lines) if cause in self.lines else self.lines,
        )

    def recharged(self, moves: Mapping[str, float], to: str) -> Account:
        """The same account with parts of what workers were waited for under another cause.

        Args:
            moves: cause to the part of it that goes elsewhere, 0 to 1.
            to: the cause to which it goes.
        """
        own, awaited = dict(self.own), dict(self.awaited)
        for block, amounts in self.awaited.items():
            changed = {cause: part * amounts[cause] for cause, part in moves.items()}
            change = Amounts({**{cause: -amount for cause, amount in changed.items()}, to: sum(changed.values())})
            own[block], awaited[block] = Amounts.summed([own[block], change]), Amounts.summed([amounts, change])
        return replace(self, own=own, awaited=awaited)

    def with_own(self, own: Mapping[int, Amounts[str]], origins: Mapping[str, str]) -> Account:
        """The same account with other causes in this trainer; files and lines keep their parts of a cause.

        Args:
            own: the causes per second of the recording.
            origins: of causes that are new, those whose lines are theirs.
        """
        old, new = Amounts.summed(self.own.values()), Amounts.summed(own.values())

        def kept(detail: Mapping[str, Amounts[str]]) -> dict[str, Amounts[str]]:
            found = {}
            for cause in new:
                origin = cause if cause in old else origins.get(cause, cause)
                if origin in detail and old[origin]:
                    factor = new[cause] / old[origin]
                    found[cause] = Amounts({name: amount * factor for name, amount in detail[origin].items()})
            return found

        awaited = {
            block: Amounts({cause: part * own[block][cause] / self.own[block][cause] for cause, part in some.items()})
            for block, some in self.awaited.items()
        }
        return replace(self, own=dict(own), awaited=awaited, targets=kept(self.targets), lines=kept(self.lines))

    def waiting_for(self, rank: int, part: float, doing: Mapping[str, float], of: str = BANDWIDTH) -> Account:
        """The same account with a part of what went to the exchange between ranks as a wait for one of them.

        Args:
            rank: which.
            part: of all time that went there.
            doing: what that rank did, cause to fraction, summing to 1.
            of: the cause that the time had.
        """
        own, waits = dict(self.own), dict(self.waits)
        for block, amounts in self.own.items():
            waited = part * amounts[of]
            if waited <= 0:
                continue
            own[block] = Amounts.summed([amounts, {of: -waited}])
            theirs = {cause: fraction * waited for cause, fraction in doing.items()}
            waits[block, rank] = Amounts.summed([waits.get((block, rank), {}), theirs])
        return replace(self, own=own, waits=waits)

    @property
    def rank(self) -> int:
        """The number of its trainer."""
        return self.trainer.rank or 0

    @property
    def seconds(self) -> float:
        """All attributed time."""
        return self.phases.total

    @property
    def block_numbers(self) -> set[int]:
        """Seconds of the recording in which anything was attributed."""
        return {*self.own, *(block for block, _ in self.waits)}

    def by_block(self) -> dict[int, Amounts[str]]:
        """All causes, by second of the recording."""
        return summed_by_block([self.own, self.late_by_block()])

    def late_by_block(self) -> dict[int, Amounts[str]]:
        """Causes in other ranks that this one waited for, by second of the recording."""
        return sum_by_place((block, amounts) for (block, _), amounts in self.waits.items())

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
                found[cause, self.rank] += amount
        for (_, rank), amounts in self.waits.items():
            for cause, amount in amounts.items():
                found[cause, rank] += amount
        return found


def asks_for_exchange(accounts: Sequence[Account]) -> bool:
    """Whether ranks of a job on GPUs ask for many collectives.

    ``DistributedDataParallel`` and its like gather gradients in buckets, and call no collective in Python.
    """
    asking = sum(account.phases["gradient sync"] for account in accounts)
    return asking >= thresholds.ASKS_FOR_EXCHANGE * sum(account.seconds for account in accounts)


def _apart(lines: Mapping[str, float], functions: Collection[str]) -> tuple[Amounts[str], Amounts[str]]:
    """Lines of some functions, and all others."""
    inside = Amounts({line: amount for line, amount in lines.items() if owner_of(line) in functions})
    return inside, Amounts({line: amount for line, amount in lines.items() if line not in inside})


def _but(lines: Mapping[str, float], others: Collection[str]) -> dict[str, float]:
    return {line: amount for line, amount in lines.items() if line not in others}


def _scaled(lines: Amounts[str], total: float) -> Amounts[str]:
    """In proportion to some lines, amounts with another sum."""
    return Amounts({line: total * part for line, part in lines.fractions().items()})


def find_culprits(accounts: Sequence[Account]) -> dict[str, tuple[int, ...]]:
    """Cause to the ranks in which most of it lies; empty for a single rank."""
    if len(accounts) < 2:
        return {}
    by_rank = Amounts.summed(account.by_rank() for account in accounts)
    found: dict[str, tuple[int, ...]] = {}
    for cause in {cause for cause, _ in by_rank}:
        ranks = {rank: amount for (name, rank), amount in by_rank.items() if name == cause}
        most = thresholds.CULPRIT_SHARE * sum(ranks.values())
        found[cause] = tuple(sorted(rank for rank, amount in ranks.items() if amount >= most))
    return found
