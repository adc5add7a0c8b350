"""What accounts measure beside the shares."""

from collections.abc import Sequence

from perfdoctor.attribution.account import Account
from perfdoctor.metrics.names import Measured, Numbers, of_process, put


def measure_accounts(accounts: Sequence[Account]) -> Measured:
    """What main threads run around the arithmetic, and how long they prepare batches or draw indices themselves."""
    numbers: Numbers = {}
    put(numbers, "interpreter_code", _of_overhead(accounts, [account.interpreter for account in accounts]))
    put(numbers, "library_code", _of_overhead(accounts, [account.libraries for account in accounts]) or None)
    by_trainer: dict[int, Numbers] = {}
    for account in accounts:
        pid, watched = account.trainer.pid, account.seconds
        own = by_trainer.setdefault(pid, {})
        put(own, "own_fetching", account.fetching / watched if watched else None, of_process(pid))
        if account.sampling:
            put(own, "own_sampling", account.sampling / watched, of_process(pid))
        if account.compiling:
            put(own, "own_compiling", account.compiling / watched, of_process(pid))
    return Measured(numbers, by_trainer)


def _of_overhead(accounts: Sequence[Account], parts: Sequence[float | None]) -> float | None:
    """The mean of parts of the trainers' Python overhead, by how long it takes in each; None where none is known."""
    overhead = [sum(causes["cpu.python_overhead"] for causes in account.own.values()) for account in accounts]
    known = [(seconds, part) for seconds, part in zip(overhead, parts, strict=True) if part is not None]
    total = sum(seconds for seconds, _ in known)
    return sum(seconds * part for seconds, part in known) / total if total else None
