"""What a main thread computes, told from its sampled instructions and from what its pool lacks meanwhile."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.attribution.code_mix import SPIN, CodeMix, read_code_mix
from perfdoctor.recording.schema import CodeSample
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.stacks import Stacks
from perfdoctor.timeline.thread_kinds import ThreadKinds
from perfdoctor.timeline.threads import ThreadState

TRAINER = 10
S = 1_000_000_000
KERNEL, BARRIER = ("libmkl_core.so", "mkl_blas_sgemm"), ("libgomp.so.1", "gomp_barrier_wait_end")
COMPUTES, LACKS_A_CORE = ThreadState("R", None, "", 1.0, 0.0), ThreadState("R", None, "", 0.5, 0.5)


def job(*seen: tuple[tuple[str, str], int], disturbed_from_s: float) -> Any:
    """A trainer in a forward pass, sampled 100 times a second, of which the pool's other thread lacks a core later."""
    codes = [code for code, times in seen for _ in range(times)]
    samples = [CodeSample(n * S // 100, TRAINER, image, 0, name) for n, (image, name) in enumerate(codes)]
    helper: Any = SimpleNamespace(at=lambda time: LACKS_A_CORE if time >= disturbed_from_s * S else COMPUTES)
    pool: Any = SimpleNamespace(pool=lambda pid: [helper])
    return SimpleNamespace(
        code=samples,
        threads=SimpleNamespace(main_times=lambda pid: []),
        gil=SimpleNamespace(is_collecting=lambda pid, time: False),
        locator=SimpleNamespace(
            locate=lambda pid, time, state, in_c: CodeLocation("forward"),
            is_known=lambda pid: True,
            changes_per_s=lambda pid: 1.0,
        ),
        kinds=SimpleNamespace(pool_delay=partial(ThreadKinds.pool_delay, pool)),
        stacks=Stacks(),
        processes=SimpleNamespace(workers_of=lambda pid: []),
    )


def spinning(mix: CodeMix, *, held_up: bool) -> float:
    return mix.causes(CodeLocation("forward"), held_up=held_up).get(SPIN, 0.0)


def test_a_barrier_takes_the_time_in_which_the_pool_lacks_a_core() -> None:
    mix = read_code_mix(job((KERNEL, 300), (BARRIER, 100), disturbed_from_s=3.0), TRAINER)
    assert spinning(mix, held_up=True) == 1.0
    assert spinning(mix, held_up=False) == 0.0


@pytest.mark.parametrize("held_up", [True, False])
def test_too_few_samples_of_either_leave_the_mean(held_up: bool) -> None:
    late = 3.9 if held_up else 0.1
    mix = read_code_mix(job((KERNEL, 300), (BARRIER, 100), disturbed_from_s=late), TRAINER)
    assert spinning(mix, held_up=held_up) == 0.25
