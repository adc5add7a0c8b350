"""Lists of cores as the kernel writes them, and recordings keep them."""

from collections.abc import Iterable
from itertools import groupby


def core_list(text: str) -> tuple[int, ...]:
    """Numbers meant by a list such as ``0-3,8``."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def core_text(cores: Iterable[int]) -> str:
    """The list notation of some core numbers, the reverse of ``core_list``."""
    runs = groupby(enumerate(sorted(set(cores))), key=lambda pair: pair[1] - pair[0])
    bounds = [[core for _, core in run] for _, run in runs]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in bounds)
