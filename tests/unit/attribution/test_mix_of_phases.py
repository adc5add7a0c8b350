"""What a main thread computes in each phase: its machine code, and what its pool lacks meanwhile.

Machine code of short steps, which cannot be matched to phases by time, is shared out by what it can be part of.
"""

from collections import Counter
from itertools import chain, cycle

import pytest

from perfdoctor.attribution.device_host import with_device
from perfdoctor.attribution.machine_code_by_phase import IN_STEP, _apart, mark_in_step, misplaced, phase_of, share_out
from perfdoctor.attribution.mix_of_phases import SPIN, CodeMix, _fractions, _libraries, read_code_mix
from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.knowledge.frames import PHASES, Frame
from perfdoctor.recording.schema import Mark, Sample
from perfdoctor.timeline.code_location import AFTERWARDS, ALLOCATOR, UNKNOWN, CodeLocation
from tests.builders import jobs

SAMPLES = Counter(kernel=500, dispatch=100, interpreter=100, library=300)


def test_libraries_work_in_the_jobs_own_code() -> None:
    step, own = _apart(SAMPLES, 0.5)
    assert step["library"] == 0
    assert own["library"] == 300
    assert step.total() == pytest.approx(own.total())
    assert {kind: step[kind] + own[kind] for kind in SAMPLES} == pytest.approx(dict(SAMPLES))


def test_a_call_of_the_allocator_takes_the_drivers_samples() -> None:
    """What is left for the job's own code beside it is Python."""
    calls = phase_of(CodeLocation("other", ALLOCATOR))
    samples = {AFTERWARDS: Counter(interpreter=250, driver=150), calls: Counter(interpreter=50, driver=450, clock=100)}
    own = share_out(samples, {AFTERWARDS: 0.3, calls: 0.7}, frozenset())[AFTERWARDS]
    assert own["interpreter"] == own.total() == 300


def test_what_has_no_room_in_own_code_stays_in_steps() -> None:
    step, own = _apart(SAMPLES, 0.1)
    assert own == Counter(library=100)
    assert step["library"] == 200


@pytest.mark.parametrize("own", [0.0, 0.001, 0.999, 1.0])
def test_a_handful_of_samples_makes_no_mix_of_its_own(own: float) -> None:
    assert _apart(SAMPLES, own) == (SAMPLES, SAMPLES)


def test_without_stacks_python_code_is_not_called_overhead() -> None:
    mixes = {"other": {"cpu.model_compute": 0.3, "cpu.python_overhead": 0.6, "cpu.input_preprocessing": 0.1}}
    assert CodeMix(mixes).causes(UNKNOWN, held_up=False) == mixes["other"]
    unplaced = CodeMix(mixes, located=False).causes(UNKNOWN, held_up=False)
    assert unplaced == pytest.approx({"cpu.model_compute": 0.3, UNATTRIBUTED: 0.7})
    assert CodeMix({}, located=False).causes(UNKNOWN, held_up=False) == {UNATTRIBUTED: 1.0}


def test_libraries_are_input_before_the_model_and_overhead_after_it() -> None:
    counts = Counter(kernel=50, library=50)
    before, after = _fractions(counts, "other"), _fractions(counts, AFTERWARDS)
    assert before["cpu.input_preprocessing"] == after["cpu.python_overhead"] == 0.5
    assert "cpu.python_overhead" not in before
    assert "cpu.input_preprocessing" not in after


def test_libraries_in_a_step_are_overhead_as_far_as_they_have_no_room_outside() -> None:
    by_phase = {phase: Counter[str]() for phase in PHASES}
    by_phase |= {"forward": Counter(kernel=500, library=200), "other": Counter(library=300)}
    assert misplaced(by_phase, {"forward": 0.6, "other": 0.4}) == 1.0
    assert misplaced(by_phase, {"forward": 0.7, "other": 0.3}) == pytest.approx(0.375)
    assert misplaced(by_phase, {"forward": 1.0}) == 0.0
    marked = mark_in_step(by_phase, 0.25)
    assert marked["other"] == by_phase["other"]
    assert marked["forward"] == {"kernel": 500, "library": 50, IN_STEP: 150}
    mix = _fractions(marked["forward"], "forward")
    assert mix["cpu.python_overhead"] == pytest.approx(150 / 700)


def test_looking_for_nan_is_no_arithmetic_of_the_model_where_gradients_are_computed() -> None:
    """A mask of the model's own compares as well, in its forward pass."""
    backward = Frame("/v/lib/python3.11/site-packages/torch/_tensor.py", "Tensor.backward", 581)
    mix = read_code_mix(
        jobs.timeline(
            [
                *jobs.process(TRAINER),
                *jobs.thread(TRAINER, TRAINER, run=1.0),
                *jobs.stacks(TRAINER, (jobs.OWN, jobs.MODULE), (jobs.OWN, backward), times=10, every_s=1.0),
                *jobs.code(TRAINER, "libtorch_cpu.so", "_ZN2at6native4AVX29ne_kernelE", 400),
            ]
        ),
        TRAINER,
    )
    assert mix.causes(CodeLocation("forward"), held_up=False) == {"cpu.model_compute": 1.0}
    assert mix.causes(CodeLocation("backward"), held_up=False) == {"cpu.python_overhead": 1.0}


def _marked_steps(every_s: float) -> list[Sample]:
    """The first half of each step is a forward pass, the rest the loop's own code."""
    times = (jobs.at(every_s * number / 2) for number in range(2 * round(jobs.SECONDS / every_s)))
    return [Mark(time_ns, TRAINER, edge, "forward", 3) for time_ns, edge in zip(times, cycle(["begin", "end"]))]


@pytest.mark.parametrize("marked", [True, False])
def test_phases_too_short_for_stacks_are_known_where_they_are_marked(marked: bool) -> None:
    """Without marks, the samples of all phases are one mix."""
    step_s, steps = 0.02, round(jobs.SECONDS / 0.02)
    arithmetic = (jobs.code(TRAINER, *KERNEL, 1, from_s=(one + 0.2) * step_s) for one in range(steps))
    python = (jobs.code(TRAINER, *INTERPRETER, 1, from_s=(one + 0.7) * step_s) for one in range(steps))
    mix = read_code_mix(
        jobs.timeline(
            [
                *jobs.process(TRAINER),
                *jobs.thread(TRAINER, TRAINER, run=1.0),
                *jobs.stacks(TRAINER, (jobs.OWN, jobs.MODULE), (jobs.OWN,)),
                *chain(*arithmetic, *python),
                *(_marked_steps(step_s) if marked else ()),
            ]
        ),
        TRAINER,
    )
    arithmetic_part = mix.causes(CodeLocation("forward"), held_up=False)["cpu.model_compute"]
    assert arithmetic_part == pytest.approx(1.0 if marked else 0.5, abs=0.01)


def test_libraries_part_of_what_runs_around_the_arithmetic() -> None:
    around = Counter(kernel=900, dispatch=20, interpreter=10, library=5)
    assert _libraries(around, 90.0) == pytest.approx(0.75)
    assert _libraries(around, 0.0) == 0.0
    assert _libraries(Counter(dispatch=30, **{IN_STEP: 70}), 0.0) == pytest.approx(0.7)
    assert _libraries(Counter(kernel=900, dispatch=9), 5.0) is None


TRAINER = 10
INTERPRETER = ("python3.11", "_PyEval_EvalFrameDefault")
KERNEL, BARRIER = ("libmkl_core.so", "mkl_blas_sgemm"), ("libgomp.so.1", "gomp_barrier_wait_end")


def mix_of(*, squeezed_from_s: float) -> CodeMix:
    """A trainer in a forward pass: 300 samples in a kernel, then 100 at a barrier, half a second later.

    The other thread of its pool gets a core for only half of the time later.
    """
    return read_code_mix(
        jobs.timeline(
            [
                *jobs.process(TRAINER),
                *jobs.thread(TRAINER, TRAINER, run=1.0),
                *jobs.thread(TRAINER + 1, TRAINER, run=1.0, squeezed_from_s=squeezed_from_s),
                *jobs.stacks(TRAINER, (jobs.OWN, jobs.MODULE), times=10, every_s=1.0),
                *jobs.code(TRAINER, *KERNEL, 300, until_s=3.0),
                *jobs.code(TRAINER, *BARRIER, 100, from_s=3.5, until_s=4.5),
            ]
        ),
        TRAINER,
    )


def spinning(mix: CodeMix, *, held_up: bool) -> float:
    return mix.causes(CodeLocation("forward"), held_up=held_up).get(SPIN, 0.0)


def test_a_barrier_takes_the_time_in_which_the_pool_lacks_a_core() -> None:
    mix = mix_of(squeezed_from_s=3.25)
    assert spinning(mix, held_up=True) == 1.0
    assert spinning(mix, held_up=False) == 0.0


@pytest.mark.parametrize("held_up", [True, False])
def test_too_few_samples_of_either_leave_the_mean(held_up: bool) -> None:
    mix = mix_of(squeezed_from_s=4.4 if held_up else 0.1)
    assert spinning(mix, held_up=held_up) == 0.25


def test_a_wait_for_results_asks_for_the_time() -> None:
    """What else runs in the driver waits for room in the launch queue, or launches without PyTorch's dispatcher."""
    split = with_device(Counter(driver=100, clock=2, dispatch=80, interpreter=10))
    assert split == Counter({"launch": 130, "device wait": 20, "driver's own": 42, "interpreter": 0})
    spinning = with_device(Counter(driver=100, clock=40, dispatch=80))
    assert (spinning["device wait"], spinning["driver's own"]) == (100, 0)


def test_whoever_yields_and_asks_for_no_time_waits_for_room_in_the_launch_queue() -> None:
    """In user mode, and in the kernel, where no code was sampled."""
    split = with_device({"driver": 100, "yield": 40, "dispatch": 80, "launch queue": 30})
    assert (split["device wait"], split["driver's own"], split["launch"]) == (0, 130, 120)


def test_waits_that_never_ask_for_the_time_are_still_waits() -> None:
    split = with_device(Counter(driver=100, dispatch=80), asks_time=False)
    assert (split["device wait"], split["driver's own"]) == (60, 0)
