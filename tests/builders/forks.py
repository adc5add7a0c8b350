"""A trainer that forks a process now and then, and takes faults for the memory that it shares with that."""

import numpy as np

from perfdoctor.recording.schema import CODE_FREQUENCY, Fact, Sample
from tests.builders import jobs

TRAINER, FRESH_S, PERIOD_S = 10, 2e-6, 2.0
FORKS_S = np.arange(-1.0, jobs.SECONDS, PERIOD_S)
PAGES, USUAL_PER_S = 40_000, 1_000.0


def faults(seconds: float, *, after_fork: float = PAGES, usual_per_s: float = USUAL_PER_S) -> float:
    """Faults up to a second, of a trainer that shares so many pages with each child for 0.2 s."""
    shared = np.clip((seconds - FORKS_S) / 0.2, 0, 1).sum()
    return float(after_fork * shared + usual_per_s * seconds)


def samples(
    *, after_fork: float = PAGES, kernel: float | None = 0.5, life_s: float | None = PERIOD_S, forked: bool = True
) -> list[Sample]:
    """A trainer that forks now and then, and is in the kernel for a part of the 0.2 s after that."""
    main = jobs.thread(TRAINER, TRAINER, run=1.0, minor_faults=lambda now: faults(now, after_fork=after_fork))
    found = [*jobs.process(TRAINER), *main, Fact(jobs.at(0), "memory", "host", "minor_fault_seconds", f"{FRESH_S}")]
    for number, fork in enumerate(FORKS_S):
        ended = None if life_s is None else float(fork) + life_s
        found += jobs.process(20 + number, parent=TRAINER, started_s=float(fork), ended_s=ended, forked=forked)
        if kernel is not None:
            in_user = int((1 - kernel) * 0.2 * CODE_FREQUENCY)
            spans = [(fork, fork + 0.2, in_user), (fork + 0.2, fork + PERIOD_S, int(1.8 * CODE_FREQUENCY))]
            for begin, end, times in spans:
                found += jobs.code(
                    TRAINER, "libtorch_cpu.so", "_ZN2at6native7DEFAULT9vectorizeEv", times, from_s=begin, until_s=end
                )
    return found
