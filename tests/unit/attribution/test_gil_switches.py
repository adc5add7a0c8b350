"""What a thread spends on switching the GIL is determined from its switches and its time in the kernel."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.attribution.gil_switches import gil_switching
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.schema import CODE_FREQUENCY, CodeSample, ThreadSample
from perfdoctor.timeline.gil import Gil
from perfdoctor.timeline.threads import ThreadSeries

TRAINER, OTHER, SECONDS = 10, 11, 10
S = 1_000_000_000


def job(*, running: float, user: float, switches: int, holder: int | None) -> Any:
    """A main thread that runs and is in user mode for these fractions of the time."""
    counted = [(0, 0, 0), (SECONDS * S, int(running * SECONDS * S), switches * SECONDS)]
    states = [ThreadSample(at, TRAINER, "R", None, "", run, 0, turns, 0, 0, 0) for at, run, turns in counted]
    sampled = int(user * SECONDS * CODE_FREQUENCY)
    code = [CodeSample(n * SECONDS * S // sampled, TRAINER, "libtorch_cpu.so", 0, "") for n in range(sampled)]
    gil: Any = SimpleNamespace(holder_at=lambda pid, time: holder)
    gil.is_taken = partial(Gil.is_taken, gil)
    main = ThreadSeries(TRAINER, TRAINER, "python", states)
    threads = SimpleNamespace(main=lambda pid: main, main_times=lambda pid: range(100))
    return SimpleNamespace(code=code, threads=threads, gil=gil)


def test_the_kernels_part_is_for_the_lock_as_far_as_switches_explain_it() -> None:
    many = job(running=0.8, user=0.6, switches=10_000, holder=OTHER)
    assert gil_switching(many, TRAINER) == pytest.approx(0.25, abs=0.01)
    few = job(running=0.8, user=0.6, switches=1000, holder=OTHER)
    assert gil_switching(few, TRAINER) == pytest.approx(1000 * thresholds.GIL_SWITCH_S / 0.8, abs=0.001)


@pytest.mark.parametrize("holder", [TRAINER, 0, None])
def test_nobody_else_wants_the_lock(holder: int | None) -> None:
    assert gil_switching(job(running=0.8, user=0.6, switches=10_000, holder=holder), TRAINER) == 0


def test_user_time_is_no_switching() -> None:
    assert gil_switching(job(running=0.8, user=0.8, switches=10_000, holder=OTHER), TRAINER) < 0.01
