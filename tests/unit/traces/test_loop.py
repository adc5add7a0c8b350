"""Steps and phases of a training loop in planted timelines, marked by the profiler or found by what PyTorch marks."""

from pathlib import Path
from typing import Any

import pytest

from perfdoctor.traces.rank import summarize
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import GEMM, LOADER, MAIN, MadeTrace

AUTOGRAD = MAIN + 1
NODE = "autograd::engine::evaluate_function: MmBackward0"
STEP, ZERO_GRAD = "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"


def summary(made: MadeTrace, folder: Path) -> dict[str, Any]:
    return summarize(read_trace(made.write(folder / "trace.json"))).loop.summary()


def phases(found: dict[str, Any]) -> dict[str, float]:
    """Microseconds of a step."""
    return {name: round(spent["mean_s"] * 1e6, 3) for name, spent in found["phases"].items()}


def training(
    *, steps: int = 4, fetches: bool = True, optimizer: bool = True, on_gpu: bool = False, zeroes_late: bool = False
) -> MadeTrace:
    """Steps of 1,000 us: 200 of fetching, 250 forward, 350 backward, 100 of the optimizer, and metrics."""
    made = MadeTrace()
    for at in (1000.0 * number for number in range(steps)):
        if fetches:
            made.annotation(LOADER, at, at + 200)
        made.operator("aten::linear", at + 200, at + 300)
        made.operator("aten::mse_loss", at + 400, at + 450)
        if zeroes_late:
            made.annotation(ZERO_GRAD, at + 450, at + 460)
            made.operator("aten::ones_like", at + 461, at + 469)
            made.operator("aten::fill_", at + 463, at + 468)
        for begin in (at + 470, at + 600):
            made.operator(NODE, begin, begin + 120, thread=AUTOGRAD if on_gpu else MAIN)
            made.operator("aten::mm", begin + 10, begin + 100, thread=AUTOGRAD if on_gpu else MAIN)
        made.operator("aten::linalg_vector_norm", at + 740, at + 780)
        if optimizer:
            made.annotation(STEP, at + 800, at + 890)
            made.operator("aten::add_", at + 810, at + 880)
            if not zeroes_late:
                made.annotation(ZERO_GRAD, at + 890, at + 900)
        made.operator("aten::item", at + 910, at + 950)
        if on_gpu:
            made.launch(GEMM, at + 210, at + 220, at + 520)
            made.launch(GEMM, at + 480, at + 520, at + 620, thread=AUTOGRAD)
            made.launch(GEMM, at + 500, at + 620, at + 820, thread=AUTOGRAD)
    return made


@pytest.mark.parametrize("on_gpu", [False, True])
def test_steps_that_nobody_marked_are_told_by_the_loaders_fetches(on_gpu: bool, tmp_path: Path) -> None:
    found = summary(training(on_gpu=on_gpu), tmp_path)
    # What comes before the first fetch that follows training may be a part of a step only, as what follows the last.
    assert (found["count"], found["marked"]) == (2, False)
    assert found["median_s"] == pytest.approx(1e-3)
    # Metrics, clipped gradients and pauses between the phases are of none.
    assert phases(found) == {"forward": 250, "backward": 250, "data": 200, "optimizer": 100, "other": 200}
    assert sum(spent["share"] for spent in found["phases"].values()) == pytest.approx(1)


def test_marked_steps_count_as_they_are_marked(tmp_path: Path) -> None:
    made = training()
    for number in range(4):
        made.step(number, number * 1000.0, number * 1000.0 + 990)
    found = summary(made, tmp_path)
    assert (found["count"], found["marked"]) == (4, True)
    assert found["median_s"] == pytest.approx(0.99e-3)
    assert phases(found)["forward"] == 250


def test_without_a_loader_steps_end_with_the_optimizers(tmp_path: Path) -> None:
    found = summary(training(fetches=False), tmp_path)
    assert found["count"] == 3
    # What follows the optimizer's step cannot be told from the next forward pass.
    assert phases(found) == {"backward": 250, "optimizer": 100, "forward": 540, "other": 110}


def test_without_an_optimizer_of_pytorchs_they_end_with_backward_passes(tmp_path: Path) -> None:
    found = summary(training(fetches=False, optimizer=False), tmp_path)
    assert found["count"] == 3
    assert "optimizer" not in found["phases"]


def test_zero_grad_before_the_backward_pass_does_not_end_the_forward_pass(tmp_path: Path) -> None:
    assert phases(summary(training(zeroes_late=True), tmp_path))["forward"] == 250


def test_a_loss_that_is_scaled_behind_zero_grad_ends_the_forward_pass(tmp_path: Path) -> None:
    made = training(zeroes_late=True)
    for at in (1000.0 * number for number in range(4)):
        made.operator("aten::mul", at + 460.2, at + 460.8)  # GradScaler.scale
    # From the first operator to that of the scaler, less 10 us of zero_grad.
    assert phases(summary(made, tmp_path))["forward"] == pytest.approx(250.6, abs=0.1)


def test_metrics_before_zero_grad_are_no_forward_pass(tmp_path: Path) -> None:
    made = MadeTrace()
    for at in (1000.0 * number for number in range(4)):
        made.annotation(STEP, at, at + 90)
        made.operator("aten::item", at + 100, at + 300)
        made.annotation(ZERO_GRAD, at + 310, at + 320)
        made.operator("aten::linear", at + 400, at + 450)
        made.operator("aten::mse_loss", at + 460, at + 500)
        made.operator(NODE, at + 600, at + 900)
    assert phases(summary(made, tmp_path))["forward"] == 100


def test_a_critic_steps_several_times_in_a_step(tmp_path: Path) -> None:
    made = MadeTrace()
    for at in (1000.0 * number for number in range(4)):
        for turn in range(5):
            made.annotation("Optimizer.step#RMSprop.step", at + 100 * turn, at + 100 * turn + 50)
        made.annotation("Optimizer.step#Adam.step", at + 800, at + 900)
    found = summary(made, tmp_path)
    assert found["count"] == 3
    assert found["median_s"] == pytest.approx(1e-3)


def test_a_closures_passes_are_not_the_optimizers(tmp_path: Path) -> None:
    made = MadeTrace()
    for at in (1000.0 * number for number in range(3)):
        made.annotation(STEP, at, at + 900)
        made.operator("aten::linear", at + 100, at + 300)
        made.operator(NODE, at + 400, at + 600)
        made.operator("aten::add_", at + 650, at + 880)
    assert phases(summary(made, tmp_path)) == {"forward": 200, "backward": 200, "optimizer": 300, "other": 300}


def test_an_epochs_validation_is_no_step(tmp_path: Path) -> None:
    made = training(steps=3)
    for number in range(10):
        made.annotation(LOADER, 3000.0 + number * 100, 3010.0 + number * 100)
        made.operator("aten::linear", 3010.0 + number * 100, 3090.0 + number * 100)
    made.annotation(LOADER, 4000, 4200)
    # The second step ends where the validation begins, and the third is not seen to end.
    assert summary(made, tmp_path)["count"] == 2


def test_what_a_device_does_is_told_by_the_phase_that_launched_it(tmp_path: Path) -> None:
    made = training(on_gpu=True)
    made.gpu()
    on_device = summary(made, tmp_path)["device"]["phases"]
    assert {name: round(time * 1e6) for name, time in on_device.items()} == {"forward": 300, "backward": 300}


def test_the_main_thread_is_that_of_the_optimizer_though_others_do_more(tmp_path: Path) -> None:
    made = training()
    for number in range(1000):
        made.operator("aten::mm", number * 4.0, number * 4.0 + 3, thread=AUTOGRAD)
    assert summary(made, tmp_path)["count"] == 2


def test_functions_of_the_jobs_own(tmp_path: Path) -> None:
    made = training(fetches=False)
    made.span("python_function", "train.py(7): main", 0.0, 4000.0)
    for at in (1000.0 * number for number in range(4)):
        made.span("python_function", "model.py(20): forward", at + 200, at + 450)
        made.span("python_function", "torch/nn/modules/linear.py(116): forward", at + 200, at + 300)
        made.span("python_function", "other.py(1): busy", at, at + 900, tid=AUTOGRAD)
    found = summary(made, tmp_path)
    assert [line["line"] for line in found["lines"]] == ["train.py:7 main", "model.py:20 forward"]
    assert [line["share"] for line in found["lines"]] == pytest.approx([0.75, 0.25])


def test_frames_of_a_thread_without_a_name_are_the_main_threads_only_where_it_has_none(tmp_path: Path) -> None:
    made = training(fetches=False)
    made.span("python_function", "debugger.py(204): read_line", 0.0, 4000.0, pid=0, tid=0)
    assert [line["line"] for line in summary(made, tmp_path)["lines"]] == ["debugger.py:204 read_line"]
    made.span("python_function", "train.py(7): main", 0.0, 4000.0)
    assert [line["line"] for line in summary(made, tmp_path)["lines"]] == ["train.py:7 main"]


def test_no_whole_step(tmp_path: Path) -> None:
    assert summary(training(steps=1), tmp_path) == {}
    made = MadeTrace()
    made.operator("aten::mm", 0, 1000)
    assert summary(made, tmp_path) == {}
