"""Memory that is filled with one number: zeros of gradients, and others."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.filled_memory import FilledMemory, filled_at, filled_memory
from perfdoctor.metrics.machine_code import code_of_trainers
from perfdoctor.recording.own_source import SourceLoop
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Sample, StackSegment
from perfdoctor.timeline.job import JobTimeline
from tests.builders import jobs

TORCH, FILE = "/v/lib/python3.11/site-packages/torch", jobs.OWN.file
BACKWARD = (jobs.OWN, Frame(f"{TORCH}/autograd/graph.py", "_engine_run_backward", 9))
CALL = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1)
FORWARD = (jobs.OWN, CALL, Frame(FILE, "Net.forward", 70))
FILL, ADD = "_ZN12_GLOBAL__N_111fill_kernelE", "_ZN12_GLOBAL__N_110add_kernelE"


def trainer(stack: tuple[Frame, ...], *, fills: int, adds: int) -> list[Sample]:
    """A job that is in a stack, with its samples of machine code of 400 in all."""
    return [
        *(*jobs.process(1), *jobs.thread(1, 1, run=1.0), *jobs.stacks(1, stack)),
        *jobs.code(1, "libtorch_cpu.so", FILL, fills),
        *jobs.code(1, "libtorch_cpu.so", ADD, adds),
        *jobs.code(1, "libtorch_cpu.so", "mkl_blas_avx512_sgemm_kernel_0", 400 - fills - adds),
    ]


def seen_in(recording: Recording) -> FilledMemory | None:
    job = JobTimeline(recording)
    return filled_memory(job, code_of_trainers(job))


def found(stack: tuple[Frame, ...], *, fills: int, adds: int) -> FilledMemory | None:
    with jobs.recorded(trainer(stack, fills=fills, adds=adds)) as recording:
        return seen_in(recording)


@pytest.mark.parametrize(("adds", "part"), [(80, 0.3), (0, 0.1), (240, 0.4)])
def test_zeros_of_gradients_count_with_what_adds_them_up(adds: int, part: float) -> None:
    """As far as that can be of them: each is added once."""
    zeros = found(BACKWARD, fills=40, adds=adds)
    assert zeros is not None
    assert (zeros.gradients, zeros.elsewhere) == (pytest.approx(part), 0)


def test_elsewhere_it_is_told_at_its_line() -> None:
    filled = found(FORWARD, fills=80, adds=80)
    assert filled is not None
    assert (filled.gradients, filled.elsewhere) == (0, pytest.approx(0.2))
    assert filled.line == f"{FILE}:70 Net.forward"


def test_gradients_that_are_set_to_zero_are_none_of_zeros() -> None:
    """Steps are short: samples of clearing seem to lie in the backward pass beside it."""
    clears = (jobs.OWN, Frame(f"{TORCH}/optim/optimizer.py", "Optimizer.zero_grad", 1062))
    turns = jobs.stacks(1, BACKWARD, clears, times=400)
    samples = [one for one in trainer(BACKWARD, fills=60, adds=80) if not isinstance(one, StackSegment)]
    with jobs.recorded([*samples, *turns]) as recording:
        cleared = seen_in(recording)
    assert cleared is not None
    assert (cleared.gradients, cleared.elsewhere) == (0, 0)
    assert cleared.cleared >= 0.15


def test_a_few_fills_are_in_every_job() -> None:
    assert found(BACKWARD, fills=8, adds=200) is None


def test_parts_are_taken_in_a_loop_below_the_models_call() -> None:
    filled = FilledMemory(0.3, 0.0, "")
    for line, place in ((69, {"indexed_at": f"{FILE}:70 Net.forward"}), (71, {})):
        loop = SourceLoop(FILE, line, line + 1, True)
        with jobs.recorded([*trainer(FORWARD, fills=0, adds=0), loop]) as recording:
            assert filled_at(JobTimeline(recording), filled) == place
