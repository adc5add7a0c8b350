"""What accounts measure beside the shares."""

from collections.abc import Sequence

from perfdoctor.attribution.account import Account
from perfdoctor.metrics.readings import Numbers, put


def measure_accounts(accounts: Sequence[Account]) -> Numbers:
    """What main threads run around the arithmetic, and how long they prepare batches or draw indices themselves."""
    numbers: Numbers = {}
    put(numbers, "interpreter_code", _of_overhead(accounts, [account.interpreter for account in accounts]))
    put(numbers, "library_code", _of_overhead(accounts, [account.libraries for account in accounts]) or None)
    for account in accounts:
        pid, watched = account.trainer.pid, account.seconds
        put(numbers, f"own_fetching.{pid}", account.fetching / watched if watched else None, f" (process {pid})")
        if account.sampling:
            put(numbers, f"own_sampling.{pid}", account.sampling / watched, f" (process {pid})")
        if account.compiling:
            put(numbers, f"own_compiling.{pid}", account.compiling / watched, f" (process {pid})")
    return numbers


def _of_overhead(accounts: Sequence[Account], parts: Sequence[float | None]) -> float | None:
    """The mean of parts of the trainers' Python overhead, by how long it takes in each; None where none is known."""
    overhead = [sum(causes["cpu.python_overhead"] for causes in account.own.values()) for account in accounts]
    known = [(seconds, part) for seconds, part in zip(overhead, parts, strict=True) if part is not None]
    total = sum(seconds for seconds, _ in known)
    return sum(seconds * part for seconds, part in known) / total if total else None
