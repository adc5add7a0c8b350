"""What is computed below the model's passes counts as the job's own code, unless it may be an update of the weights."""

import pytest

from perfdoctor.attribution.attribute import attribute
from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.knowledge.frames import Frame
from perfdoctor.timeline.amounts import Amounts
from tests.builders import jobs

TRAINER = 10
TORCH = "/usr/lib/python3.11/site-packages/torch"
KERNEL, INTERPRETER = (
    ("libtorch_cpu.so", "_ZN2at6native7DEFAULT10add_kernelEv"),
    ("python3.11", "_PyEval_EvalFrameDefault"),
)


def main(line: int, *inner: Frame) -> tuple[Frame, ...]:
    return (Frame("/home/me/train.py", "main", line), *inner)


MODEL = main(10, Frame(f"{TORCH}/nn/modules/module.py", "_call_impl", 1751))
BACKWARD = main(12, Frame(f"{TORCH}/autograd/graph.py", "_engine_run_backward", 829))
OPTIMIZER = main(13, Frame(f"{TORCH}/optim/sgd.py", "step", 80))
METRICS = main(14, Frame("/home/me/train.py", "auc", 40))


def causes(*turns: tuple[Frame, ...], code: tuple[str, str] = KERNEL) -> Amounts[str]:
    """The account of a trainer that is in these stacks by turns, each for a second."""
    stacks = jobs.stacks(TRAINER, *turns, times=10, every_s=1.0)
    job = [*jobs.process(TRAINER), *jobs.thread(TRAINER, TRAINER, run=1.0), *stacks]
    (account,) = attribute(jobs.timeline([*job, *jobs.code(TRAINER, *code, 800)]))
    return account.causes().fractions()


def test_metrics_that_take_longer_than_updates_are_no_work_of_the_models() -> None:
    found = causes(MODEL, BACKWARD, OPTIMIZER, METRICS, METRICS)
    assert found[PYTHON_OVERHEAD] == pytest.approx(0.4, abs=0.05)
    assert found[MODEL_COMPUTE] == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize(
    "turns",
    [
        (MODEL, BACKWARD, OPTIMIZER, METRICS),  # an average of the weights takes no longer than their updates
        (MODEL, BACKWARD, METRICS, METRICS),  # the job may update the weights itself
        (MODEL, METRICS, METRICS, BACKWARD, OPTIMIZER, main(16, *BACKWARD[1:])),  # a second pass follows
    ],
)
def test_what_may_be_a_part_of_the_training_is_the_models(turns: tuple[tuple[Frame, ...], ...]) -> None:
    assert causes(*turns)[MODEL_COMPUTE] == pytest.approx(1.0, abs=0.01)


def test_python_code_there_is_no_arithmetic_but_counts_as_before() -> None:
    found = causes(MODEL, BACKWARD, OPTIMIZER, METRICS, METRICS, code=INTERPRETER)
    assert found[PYTHON_OVERHEAD] == pytest.approx(1.0, abs=0.01)
