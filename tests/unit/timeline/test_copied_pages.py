"""Faults after a fork cost what they are more than later on, by their price and by the kernel's time."""

import numpy as np
import pytest

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.schema import Fact
from perfdoctor.timeline.copied_pages import CopiedPages
from perfdoctor.timeline.job import JobTimeline
from tests.builders import jobs
from tests.builders.forks import FORKS_S, FRESH_S, PAGES, TRAINER, samples


def pages(job: JobTimeline) -> CopiedPages:
    main = job.threads.main(TRAINER)
    assert main is not None
    children = [one for one in job.processes.by_pid.values() if one.parent_pid == TRAINER]
    return CopiedPages(main, job.code.of(TRAINER), children, job.minor_fault_s)


def spent_s(found: CopiedPages, until_s: float = 1.0) -> float:
    """Seconds after the fork at 1 s that go into faults."""
    return sum(found.part(jobs.at(1 + tick / 100)) for tick in range(int(100 * until_s))) / 100


def test_pages_that_a_living_child_shares_are_copied() -> None:
    found = pages(jobs.timeline(samples()))
    assert found.per_fork == pytest.approx(PAGES, rel=0.1)
    assert spent_s(found) == pytest.approx(PAGES * FRESH_S * thresholds.COPIED_PAGE, rel=0.15)
    assert found.part(jobs.at(1.5)) == found.part(jobs.at(2.5)) == 0


def test_pages_of_a_child_that_is_gone_are_kept() -> None:
    found = pages(jobs.timeline(samples(life_s=0.001, kernel=0.18)))
    assert spent_s(found) == pytest.approx(PAGES * FRESH_S * thresholds.KEPT_PAGE, rel=0.15)


def test_it_takes_about_as_long_as_the_kernel_does() -> None:
    little = spent_s(pages(jobs.timeline(samples(kernel=0.1))))
    assert 0.1 * 0.2 < little < 0.6 * spent_s(pages(jobs.timeline(samples(kernel=None))))


def test_faults_as_at_any_other_time_are_not_the_forks() -> None:
    found = pages(jobs.timeline(samples(after_fork=0)))
    assert found.per_fork == pytest.approx(0, abs=PAGES / 100)
    assert spent_s(found) == pytest.approx(0, abs=0.001)


def test_what_ends_before_the_next_fork_as_it_began_is_no_fork() -> None:
    """An evaluation at the end of an epoch takes fewer faults than the training before it."""
    main = jobs.thread(
        TRAINER, TRAINER, run=1.0, minor_faults=lambda now: float(np.clip(now - FORKS_S, 0, 1.2).sum() * 50_000)
    )
    others = [one for one in samples(kernel=None) if getattr(one, "tid", None) != TRAINER]
    assert spent_s(pages(jobs.timeline([*others, *main]))) == pytest.approx(0, abs=0.005)


def test_forks_one_after_the_other_are_one_start() -> None:
    found = samples()
    for number, fork in enumerate(FORKS_S):
        for worker in range(3):
            began = float(fork) - 0.03 * (worker + 1)
            found += jobs.process(50 + 3 * number + worker, parent=TRAINER, started_s=began, forked=True)
    together = pages(jobs.timeline(found))
    assert together.per_fork == pytest.approx(PAGES, rel=0.1)
    assert spent_s(together) == pytest.approx(PAGES * FRESH_S * thresholds.COPIED_PAGE, rel=0.15)


@pytest.mark.filterwarnings("error")
def test_workers_that_started_at_the_same_tick_of_the_clock_are_one_start() -> None:
    twice = [*jobs.process(50, parent=TRAINER, started_s=-2.0), *jobs.process(51, parent=TRAINER, started_s=-2.0)]
    main = jobs.thread(TRAINER, TRAINER, run=1.0, minor_faults=lambda now: 1000 * now)
    price = Fact(jobs.START, "host", "host", "minor_fault_seconds", str(FRESH_S))
    assert spent_s(pages(jobs.timeline([price, *jobs.process(TRAINER), *main, *twice]))) == 0


def test_without_the_price_of_a_page_nothing_is_said() -> None:
    job = jobs.timeline([one for one in samples() if not isinstance(one, Fact)])
    assert spent_s(pages(job)) == 0


def test_a_few_forks_say_nothing() -> None:
    late = [one for one in samples() if getattr(one, "pid", 0) not in range(22, 30)]
    assert spent_s(pages(jobs.timeline(late))) == 0
