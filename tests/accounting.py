"""For tests of what traces are accounted for: planted timelines, and the shares that they come to."""

from pathlib import Path

from perfdoctor.traces.account import RankAccount, account_for
from perfdoctor.traces.reader import read_trace
from tests.made_traces import GEMM, MadeTrace


def account(made: MadeTrace, folder: Path) -> RankAccount:
    return account_for(read_trace(made.write(folder / "trace.json")))


def shares(made: MadeTrace, folder: Path) -> dict[str, float]:
    return {cause: round(share, 3) for cause, share in account(made, folder).shares.items()}


def steady(*, kernels: int = 10, each: float = 1000.0) -> MadeTrace:
    """A host far ahead of a GPU that never idles, from 0 to ``kernels * each``."""
    made = MadeTrace()
    made.gpu()
    made.step(1, 0.0, 100.0 + kernels * 10)
    for number in range(kernels):
        made.launch(GEMM, number * 10.0, 5.0 + number * each, 5.0 + (number + 1) * each)
    return made


def loop(work: float, host: float, *, steps: int = 10) -> MadeTrace:
    """Steps in which the host takes its time before it launches the one kernel of a step."""
    made = MadeTrace()
    made.gpu()
    period = work + host
    for number in range(steps):
        start = number * period
        made.step(number, start, start + period)
        made.launch(GEMM, start + host - 10.0, start + host, start + period)
    return made
