"""What ledgers measure beside the shares."""

from collections.abc import Sequence

from perfdoctor.attribution.account import Ledger
from perfdoctor.metrics.names import Measured, Numbers, of_process, put


def measure_ledgers(ledgers: Sequence[Ledger]) -> Measured:
    """What main threads run around the arithmetic, and how long they prepare batches or draw indices themselves."""
    numbers: Numbers = {}
    put(numbers, "interpreter_code", _of_overhead(ledgers, [ledger.interpreter for ledger in ledgers]))
    put(numbers, "library_code", _of_overhead(ledgers, [ledger.libraries for ledger in ledgers]) or None)
    by_trainer: dict[int, Numbers] = {}
    for ledger in ledgers:
        pid, watched = ledger.trainer.pid, ledger.seconds
        own = by_trainer.setdefault(pid, {})
        put(own, "own_fetching", ledger.fetching / watched if watched else None, of_process(pid))
        if ledger.sampling:
            put(own, "own_sampling", ledger.sampling / watched, of_process(pid))
        if ledger.compiling:
            put(own, "own_compiling", ledger.compiling / watched, of_process(pid))
    return Measured(numbers, by_trainer)


def _of_overhead(ledgers: Sequence[Ledger], parts: Sequence[float | None]) -> float | None:
    """The mean of parts of the trainers' Python overhead, by how long it takes in each; None where none is known."""
    overhead = [sum(causes["cpu.python_overhead"] for causes in ledger.own.values()) for ledger in ledgers]
    known = [(seconds, part) for seconds, part in zip(overhead, parts, strict=True) if part is not None]
    total = sum(seconds for seconds, _ in known)
    return sum(seconds * part for seconds, part in known) / total if total else None
