"""Bottlenecks planted into traces of sound jobs, whose truth is the time by which the device idles more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from perfdoctor.cluster.files import find_traces
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.knowledge import thresholds
from perfdoctor.traces.account import account_for
from perfdoctor.traces.device import IdleReason
from perfdoctor.traces.reader import read_trace
from tests.builders.planted_traces import LOADER, Event, Planted
from tests.builders.traces import ALL_REDUCE, ELEMENTWISE, GEMM, MadeTrace, diagnose_traces
from tests.files import real

Fill = Callable[[Planted, float, float, Event], object]
MADE = "made"
SOUND = [MADE, "resnet-ddp-v100-sound", "nanogpt-h100-adam-after"]
# How much of a step the host is held up for, in each.
PART = 0.8


def sound_job(folder: Path) -> Path:
    """The host needs 6 ms for a step and the GPU 10, of which it does nothing else for 0.2."""
    made = MadeTrace()
    made.gpu()
    free = 0.0
    for step in range(8):
        begin = step * 6000.0
        made.step(step, begin, begin + 5990.0)
        for number in range(20):
            called = begin + 100.0 + number * 290.0
            made.operator("aten::mm", called - 50.0, called + 20.0)
            free = max(free, called + 8.0) + 10.0
            made.launch(GEMM if number % 4 else ELEMENTWISE, called, free, free + 490.0)
            free += 490.0
    return made.write(folder / "sound.json.gz")


def sound(name: str, folder: Path) -> Planted:
    return Planted(sound_job(folder) if name == MADE else real(name))


def diagnose(path: Path) -> Diagnosis:
    return diagnose_traces(read_trace(one) for one in find_traces([path]))


def share_of(diagnosis: Diagnosis, cause: str) -> float:
    return next((line.share for line in diagnosis.breakdown if line.cause == cause), 0.0)


def idle(planted: Planted) -> tuple[float, float]:
    """How long the device idles, and the whole time."""
    start = planted.steps()[0]["ts"]
    end = max(event["ts"] + event["dur"] for event in planted.on_device())
    return end - start - planted.busy(start, end), end - start


def hold_up_each_step(planted: Planted, fill: Fill, length: float | None = None) -> float:
    """Returns the fraction of the time by which the device idles more.

    Args:
        planted: the trace.
        fill: adds what the host does meanwhile: from a moment, how long, on the thread of a step.
        length: microseconds; None until the device has drained its queue.
    """
    before, _ = idle(planted)
    for number in range(len(planted.steps())):
        step = planted.steps()[number]
        moment = step["ts"] + 1.0
        lasts = planted.drained(moment) - moment + 4.0 if length is None else length
        planted.hold_up(moment, lasts)
        fill(planted, moment, lasts, step)
    after, whole = idle(planted)
    return (after - before) / whole


def step_length(planted: Planted) -> float:
    return idle(planted)[1] / len(planted.steps())


def load(planted: Planted, moment: float, length: float, step: Event) -> None:
    planted.add("user_annotation", LOADER, moment, moment + length, step)


def allocate(planted: Planted, moment: float, length: float, step: Event) -> None:
    for number in range(20):
        planted.call("cudaMalloc", moment + number * length / 20, moment + (number + 0.9) * length / 20, step)


def compute_metrics(planted: Planted, moment: float, length: float, step: Event) -> None:
    planted.add("python_function", "train.py(7): metrics", moment, moment + length, step)


def save(planted: Planted, moment: float, length: float, step: Event) -> None:
    planted.add("python_function", "torch/serialization.py(850): save", moment, moment + length, step)


def work_in_operators(planted: Planted, moment: float, length: float, step: Event) -> None:
    for number in range(int(length / 25)):
        planted.add("cpu_op", "aten::add", moment + number * 25, moment + number * 25 + 15, step)


def load_code(planted: Planted, moment: float, length: float, step: Event) -> None:
    planted.add("cpu_op", "aten::masked_fill_", moment, moment + length, step)
    planted.call("cudaLaunchKernel", moment + 5.0, moment + length - 5.0, step)


def compile_fuser(planted: Planted, moment: float, length: float, step: Event) -> None:
    planted.add("cpu_op", "prim::TensorExprGroup", moment, moment + length, step)
    for later in planted.steps()[1:]:
        planted.add("cpu_op", "prim::TensorExprGroup", later["ts"] + 3.0, later["ts"] + 13.0, later)


def do_nothing(planted: Planted, moment: float, length: float, step: Event) -> None:
    pass


def wait(planted: Planted, moment: float, length: float, step: Event) -> None:
    planted.call("cudaStreamSynchronize", moment, moment + length, step)


def fetch_a_number(planted: Planted, moment: float, length: float, step: Event) -> None:
    _copy(planted, "Memcpy DtoH (Device -> Pageable)", moment, length, step)


def send_from_ordinary_memory(planted: Planted, moment: float, length: float, step: Event) -> None:
    _copy(planted, "Memcpy HtoD (Pageable -> Device)", moment, length, step)


def _copy(planted: Planted, name: str, moment: float, length: float, step: Event) -> None:
    """One for which the host waits until the device gets to it."""
    correlation, end = planted.call("cudaMemcpyAsync", moment, moment + length, step), moment + length
    like = planted.on_device()[0]
    planted.add("gpu_memcpy", name, end - 3, end - 1, like, **{**like["args"], "correlation": correlation})


@pytest.mark.parametrize("name", SOUND)
def test_what_is_replayed_unchanged_stays_as_it_was(name: str, tmp_path: Path) -> None:
    planted = sound(name, tmp_path)
    before = idle(planted)
    planted.lengthen({})
    assert idle(planted) == pytest.approx(before, rel=0.01)
    assert diagnose(planted.write(tmp_path / "planted.json")).verdict.cause == "gpu.compute"


@pytest.mark.parametrize(
    ("name", "fill", "cause"),
    [
        *((name, load, "cpu.input_preprocessing") for name in SOUND),
        *((name, compute_metrics, "cpu.python_overhead") for name in SOUND),
        *((name, allocate, "gpu.memory_pressure") for name in SOUND[:2]),
        *((name, save, "io.checkpoint_write") for name in SOUND[:2]),
    ],
)
def test_what_holds_the_host_up_is_charged_for_all_that_it_costs(
    name: str, fill: Fill, cause: str, tmp_path: Path
) -> None:
    """Also for the idle times that follow, while the host regains its lead."""
    planted = sound(name, tmp_path)
    truth = hold_up_each_step(planted, fill, PART * step_length(planted))
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert truth > 0.1
    assert diagnosis.verdict.cause == cause
    assert share_of(diagnosis, cause) == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize("name", SOUND[:2])
def test_operators_that_launch_nothing_are_overhead(name: str, tmp_path: Path) -> None:
    """What launches late after them counts as launching in part: the host does both one by one."""
    planted = sound(name, tmp_path)
    truth = hold_up_each_step(planted, work_in_operators, PART * step_length(planted))
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert diagnosis.verdict.cause == "cpu.python_overhead"
    overhead, launching = (share_of(diagnosis, one) for one in ("cpu.python_overhead", "cpu.kernel_launch"))
    assert overhead + launching == pytest.approx(truth, abs=0.03)
    assert overhead > 0.8 * truth
    assert "Work of operators on the host" in diagnosis.verdict.summary
    assert any("aten::add" in str(one.value) for one in diagnosis.findings[0].evidence)


@pytest.mark.parametrize(
    ("fill", "cause"),
    [
        (wait, "cpu.synchronization"),
        (fetch_a_number, "cpu.synchronization"),
        (send_from_ordinary_memory, "gpu.host_transfer"),
    ],
)
@pytest.mark.parametrize("name", SOUND)
def test_a_wait_costs_what_the_device_idles_after_it(name: str, fill: Fill, cause: str, tmp_path: Path) -> None:
    """It costs nothing where the host is quick enough without a lead."""
    planted = sound(name, tmp_path)
    truth = hold_up_each_step(planted, fill)
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert share_of(diagnosis, cause) == pytest.approx(truth, abs=0.03)
    assert diagnosis.verdict.cause == (cause if truth > 0.1 else "gpu.compute")


def test_copies_that_hold_the_host_cost_what_the_device_idles_less_without_them() -> None:
    """A job that copies batches from pageable memory; the first copy lies before the account."""
    path = real("resnet50-v100-4-workers")
    account, planted = account_for(read_trace(path)), Planted(path)
    before, _ = idle(planted)
    copies = [event["args"]["correlation"] for event in planted.on_device() if "HtoD" in event["name"]]
    blocked = [one for one in planted.events if one["cat"] == "cuda_runtime" and one["dur"] > 100.0]
    blocked = [one for one in blocked if one["args"].get("correlation") in copies]
    for call in sorted(blocked, key=lambda one: float(one["ts"]))[1:]:
        planted.hold_up(call["ts"] + 10.0, 12.0 - call["dur"])
    after, _ = idle(planted)
    truth = (before - after) * 1000 / account.window.length
    assert truth > 0.05
    assert account.idle_for(IdleReason.COPYING_IN) == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize("name", SOUND)
def test_a_host_outside_of_pytorch_is_named_and_what_it_does_is_not_guessed(name: str, tmp_path: Path) -> None:
    planted = sound(name, tmp_path)
    truth = hold_up_each_step(planted, do_nothing, PART * step_length(planted))
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert share_of(diagnosis, "cpu.python_overhead") == pytest.approx(truth, abs=0.03)
    assert share_of(diagnosis, "unattributed") < 0.01
    assert diagnosis.verdict.confidence <= thresholds.CONFIDENCE_UNSEEN_CODE
    assert "the trace does not show what it does" in diagnosis.verdict.summary
    assert any("does outside of PyTorch" in one.reason for one in diagnosis.not_examined)


@pytest.mark.parametrize("name", SOUND)
def test_of_a_sample_of_the_events_nothing_is_said_about_what_is_missing(name: str, tmp_path: Path) -> None:
    """The numbers of calls count on while no call is written down."""
    planted = sound(name, tmp_path)
    truth = hold_up_each_step(planted, do_nothing, PART * step_length(planted))
    for event in planted.events:
        if event.get("args", {}).get("correlation"):
            event["args"]["correlation"] *= 1000
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert share_of(diagnosis, "unattributed") == pytest.approx(truth, abs=0.03)
    assert any("Only a sample of the events" in one.reason for one in diagnosis.not_examined)


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize(("fill", "operator"), [(load_code, None), (compile_fuser, "prim::TensorExprGroup")])
def test_what_is_done_once_is_the_start_and_nothing_is_promised_for_it(
    name: str, fill: Fill, operator: str | None, tmp_path: Path
) -> None:
    """In the first step only: 0.3 s in the first call of a kernel, or of a fuser that compiles."""
    planted = sound(name, tmp_path)
    before, whole = idle(planted)
    first = planted.steps()[0]
    moment = first["ts"] + 1.0
    length = planted.drained(moment) - moment + 2.0 * whole
    planted.hold_up(moment, length)
    fill(planted, moment, length, first)
    after, lasts = idle(planted)
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    verdict = diagnosis.verdict
    assert (verdict.bottleneck, verdict.cause, verdict.predicted_speedup) == ("cpu", "cpu.startup", 1.0)
    assert verdict.share == pytest.approx((after - before) / lasts, abs=0.03)
    [seconds] = [one for one in diagnosis.findings[0].evidence if one.unit == "s"]
    assert seconds.value == pytest.approx((after - before) / 1e6, rel=0.05)
    assert "says nothing about the steps that follow" in verdict.summary
    assert diagnosis.findings[0].fixes[0].title == "Trace later steps"
    assert not any(one.cause == "cpu.kernel_launch" for one in diagnosis.findings)
    if operator is not None:
        assert any(operator in str(one.value) for one in diagnosis.findings[0].evidence)


def test_a_short_start_is_named_beside_the_verdict(tmp_path: Path) -> None:
    planted = sound(MADE, tmp_path)
    _, whole = idle(planted)
    first = planted.steps()[0]
    moment = first["ts"] + 1.0
    length = planted.drained(moment) - moment + 0.12 * whole
    planted.hold_up(moment, length)
    load_code(planted, moment, length, first)
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert diagnosis.verdict.cause == "gpu.compute"
    [start] = [one for one in diagnosis.findings if one.cause == "cpu.startup"]
    assert start.share == pytest.approx(0.1, abs=0.03)
    assert start.predicted_speedup == 1.0


@pytest.mark.parametrize(("loads", "cause"), [(True, "cpu.startup"), (False, "gpu.memory_pressure")])
def test_allocations_belong_to_the_start_only_beside_other_first_time_work(
    tmp_path: Path, *, loads: bool, cause: str
) -> None:
    planted = sound(MADE, tmp_path)
    _, whole = idle(planted)
    first = planted.steps()[0]
    moment = first["ts"] + 1.0
    length = planted.drained(moment) - moment + whole
    planted.hold_up(moment, length)
    allocate(planted, moment, 0.6 * length, first)
    (load_code if loads else allocate)(planted, moment + 0.6 * length, 0.4 * length, first)
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert diagnosis.verdict.cause == cause
    assert share_of(diagnosis, cause) > 0.4


@pytest.mark.parametrize("fill", [load_code, compile_fuser])
def test_what_takes_as_long_in_every_step_is_no_start(fill: Fill, tmp_path: Path) -> None:
    planted = sound(MADE, tmp_path)
    truth = hold_up_each_step(planted, fill, PART * step_length(planted))
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert share_of(diagnosis, "cpu.startup") == 0.0
    found = share_of(diagnosis, "cpu.kernel_launch") + share_of(diagnosis, "cpu.python_overhead")
    assert found == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize("name", SOUND[:2])
def test_launches_that_are_not_told_change_little(name: str, tmp_path: Path) -> None:
    planted, random = sound(name, tmp_path), Random(1)
    truth = hold_up_each_step(planted, load, PART * step_length(planted))
    for event in planted.on_device():
        if random.random() < 0.3:
            event["args"].pop("correlation", None)
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert diagnosis.verdict.cause == "cpu.input_preprocessing"
    assert share_of(diagnosis, "cpu.input_preprocessing") == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize("name", SOUND)
def test_collectives_behind_compute_are_free(name: str, tmp_path: Path) -> None:
    planted = sound(name, tmp_path)
    for event in planted.on_device():
        if event["cat"] == "kernel":
            args = {**event["args"], "stream": 991, "correlation": None}
            planted.add("kernel", ALL_REDUCE, event["ts"], event["ts"] + event["dur"], {**event, "tid": 991}, **args)
    diagnosis = diagnose(planted.write(tmp_path / "planted.json"))
    assert diagnosis.verdict.cause == "gpu.compute"
    assert [one.cause for one in diagnosis.findings if one.cause.startswith("communication")] == []


@pytest.mark.parametrize(
    ("late", "fill", "cause"), [(3, load, "cpu.input_preprocessing"), (5, do_nothing, "cpu.python_overhead")]
)
def test_a_rank_that_is_held_up_is_named(late: int, fill: Fill, cause: str, tmp_path: Path) -> None:
    """The others wait for it in their first collective of each step."""
    folder = real("nanogpt-8xh100")
    planted = Planted(folder / f"rank{late}.json.gz")
    first = planted.first_collectives()
    before = [event["ts"] for event in first]
    hold_up_each_step(planted, fill, PART * step_length(planted))
    delays = [event["ts"] - time for event, time in zip(first, before, strict=True)]
    planted.write(tmp_path / f"rank{late}.json")
    for rank in range(8):
        if rank != late:
            other, longer, so_far = Planted(folder / f"rank{rank}.json.gz"), {}, 0.0
            for event, delay in zip(other.first_collectives(), delays, strict=True):
                longer[id(event)] = max(delay - so_far, 0.0)
                so_far = max(so_far, delay)
            other.lengthen(longer)
            other.write(tmp_path / f"rank{rank}.json")
    verdict = diagnose(tmp_path).verdict
    assert (verdict.straggler_rank, verdict.cause) == (late, cause)
