"""Advice about the model's arithmetic on the CPU: what it leaves out, how it computes, and in how many threads."""

import pytest

from perfdoctor.knowledge.libraries import SPARSE_GRADIENTS
from perfdoctor.metrics.own_detours import CostlyDetour, Piece
from perfdoctor.reports.wording import worded, worded_finding, worded_fixes
from perfdoctor.rules import find
from perfdoctor.rules.case import Case, Trainer
from tests.builders.cases import changes, finding, titles


def test_threads_of_arithmetic_are_as_many_as_physical_cores() -> None:
    """torchrun sets OMP_NUM_THREADS=1."""
    settings: dict[str, str | float] = {"cores": 16.0, "physical_cores": 8.0, "env.OMP_NUM_THREADS": "1"}
    few = finding("cpu.model_compute", numbers={"job_cores": 1.0, "neighbour_cores": 0.0}, settings=settings)
    assert titles(few) == ["Let the arithmetic use 8 threads"]
    many = finding("cpu.contention", numbers={"runnable_threads": 60.0}, settings=settings, workers=1)
    assert titles(many)[0] == "Use 4 compute threads per process"


def test_idle_cores_are_offered_to_arithmetic_only_if_threads_are_limited() -> None:
    numbers = {"job_cores": 1.0, "neighbour_cores": 0.0}
    limited = finding("cpu.model_compute", numbers=numbers, settings={"cores": 8.0, "env.OMP_NUM_THREADS": "1"})
    assert titles(limited) == ["Let the arithmetic use 8 threads"]
    assert finding("cpu.model_compute", numbers=numbers, settings={"cores": 8.0}).fixes == ()
    full = {"job_cores": 8.0, "neighbour_cores": 0.0}
    assert finding("cpu.model_compute", numbers=full, settings={"cores": 8.0, "env.OMP_NUM_THREADS": "1"}).fixes == ()


@pytest.mark.parametrize(("cores", "expected"), [(8.0, ["Let the arithmetic use 4 threads"]), (2.0, [])])
def test_ranks_share_the_cores_that_are_idle_while_one_waits(cores: float, expected: list[str]) -> None:
    """Two threads for each of two ranks on two cores made a job 0.2 times as fast: threads of a pool spin."""
    numbers, settings = {"job_cores": 1.4, "neighbour_cores": 0.0}, {"cores": cores, "env.OMP_NUM_THREADS": "1"}
    assert titles(finding("cpu.model_compute", ranks=2, numbers=numbers, settings={**settings})) == expected


@pytest.mark.parametrize(
    ("cores_used", "set_in_code", "told"),
    [(1.0, True, "The script limits it to 1 thread"), (1.0, False, ""), (1.9, True, "")],
)
def test_threads_that_the_script_limits_may_be_more(cores_used: float, set_in_code: bool, told: str) -> None:
    """A language model on one of two cores took 1.7 times as long."""
    settings: dict[str, str | float] = {"cores": 2.0, **({"threads_set": "yes"} if set_in_code else {})}
    numbers = {"job_cores": cores_used, "trainer_cores": cores_used, "trainer_running": 1.0}
    found = finding("cpu.model_compute", share=0.95, numbers=numbers, settings=settings)
    assert ("Let the arithmetic use 2 threads" in titles(found)) is bool(told)
    assert not told or any(told in fix.why for fix in worded_fixes(found))


def test_more_threads_than_there_is_work_for_are_not_advised() -> None:
    numbers = {"job_cores": 4.0, "trainer_cores": 4.0, "trainer_running": 1.0}
    settings: dict[str, str | float] = {"cores": 16.0, "threads_set": "4"}
    for calls, told in ((0.3, False), (0.1, True)):
        beside = {"cpu.python_overhead": calls}
        found = finding("cpu.model_compute", share=0.5, numbers=numbers, settings=settings, beside=beside)
        assert any("Let the arithmetic use" in title for title in titles(found)) is told


@pytest.mark.parametrize(("used", "told"), [(1.1, False), (1.9, True)])
def test_more_threads_are_no_use_to_a_pool_that_idles(used: float, told: bool) -> None:
    """The script's own number counts, and not how many cores small operations keep busy."""
    numbers = {"job_cores": used, "trainer_cores": used, "trainer_running": 0.97}
    for cores, text in ((4.0, told), (2.0, False)):
        settings: dict[str, str | float] = {"cores": cores, "threads_set": "2"}
        found = finding("cpu.model_compute", share=0.95, numbers=numbers, settings=settings)
        assert any("Let the arithmetic use" in title for title in titles(found)) is text


@pytest.mark.parametrize(
    ("update", "optimizer", "likely"), [("Adam", 0.4, 0.3), ("SGD", 0.4, None), ("Adam", 0.1, None), ("", 0.4, None)]
)
def test_a_large_update_is_made_in_one_pass(update: str, optimizer: float, likely: float | None) -> None:
    """Adam over two tables of embeddings: 1.46 times as fast told, 1.51 measured."""
    settings: dict[str, str | float] = {"update": update} if update else {}
    found = finding("cpu.model_compute", share=0.95, settings=settings, optimizer=optimizer)
    assert titles(found) == ["Update all parameters in one call"] * (likely is not None)
    assert found.predicted_speedup == pytest.approx(1 / (1 - (likely or 0.0)))


@pytest.mark.parametrize(
    ("ranks", "settings", "told"),
    [
        (1, {}, False),
        (2, {"embeddings": "yes"}, False),
        (1, {"embeddings": "yes"}, True),
        (1, {"embeddings": SPARSE_GRADIENTS}, False),
    ],
)
def test_rows_that_no_batch_touches_need_no_update(ranks: int, settings: dict[str, str | float], told: bool) -> None:
    found = finding("cpu.model_compute", share=0.95, settings=settings, optimizer=0.4, ranks=ranks)
    title = "Update only the rows of embedding tables that a batch touches"
    assert (title in titles(found)) is told


@pytest.mark.parametrize(
    ("again", "available", "least"), [(0.2, 12_000.0, 1.25), (0.2, 2_000.0, 1.0), (0.03, 12_000.0, None)]
)
def test_activations_are_kept_where_they_are_computed_again(
    again: float, available: float, least: float | None
) -> None:
    found = finding(
        "cpu.model_compute", share=0.9, numbers={"memory_available": available}, settings={"memory_bytes": 16e9},
        trainer={"own_recomputing": again},
    )  # fmt: skip
    assert titles(found) == ["Checkpoint fewer blocks, or none"] * (least is not None)
    confined = {"memory_bytes": 16e9, "memory_limit_bytes": 8e9}
    unseen = finding("cpu.model_compute", share=0.9, settings=confined, trainer={"own_recomputing": again})
    if least is not None:
        assert "was not seen" in worded_fixes(unseen)[0].why
        assert found.fixes[0].speedup_range is not None
        assert found.fixes[0].speedup_range[0] == pytest.approx(least)


@pytest.mark.parametrize(("arithmetic", "told"), [(0.9, 1.36), (0.6, 1.21), (0.4, None)])
def test_more_threads_help_operations_that_take_longer_than_their_calls(arithmetic: float, told: float | None) -> None:
    """Measured: 1.6 times the pace at 0.9 of the time, 1.3 at 0.7, 1.1 at 0.5 and 0.9 at 0.26."""
    numbers = {"job_cores": 1.0, "trainer_cores": 1.0, "trainer_running": 1.0}
    settings: dict[str, str | float] = {"cores": 2.0, "threads_set": "1"}
    calls = {"cpu.python_overhead": 1 - arithmetic}
    found = finding("cpu.model_compute", share=arithmetic, numbers=numbers, settings=settings, beside=calls)
    assert bool(titles(found)) is (told is not None)
    assert found.predicted_speedup == pytest.approx(told or 1.0, abs=0.01)


def test_padding_is_advised_where_the_source_pads_every_text() -> None:
    settings: dict[str, str | float] = {"pads_all": "data.py:40 encode"}
    found = finding("cpu.model_compute", share=0.95, settings=settings)
    assert titles(found) == ["Pad each batch to its longest text instead of every text to one length"]
    assert "data.py:40 encode pads every text" in worded_fixes(found)[0].why
    assert not titles(finding("cpu.model_compute", share=0.95))


def test_a_variable_that_gives_no_thread_limits_nothing() -> None:
    settings: dict[str, str | float] = {"cores": 4.0, "env.OMP_NUM_THREADS": "0"}
    found = finding("cpu.model_compute", share=0.95, numbers={"job_cores": 1.0}, settings=settings)
    assert not any("threads" in title for title in titles(found))


@pytest.mark.parametrize(
    ("share", "settings", "told"), [(0.2, {}, True), (0.02, {}, False), (0.2, {"helpers": "for the model"}, False)]
)
def test_what_is_computed_after_the_models_passes_is_done_more_rarely(
    share: float, settings: dict[str, str | float], told: bool
) -> None:
    """Metrics of all that was predicted so far, at each step; but not what an agent does next."""
    for cause in ("cpu.model_compute", "cpu.python_overhead"):
        found = finding(cause, afterwards=(("train.py:11 auc", share),), settings=settings)
        assert ("Do what train.py:11 auc does more rarely" in titles(found)) is told


@pytest.mark.parametrize(
    ("fresh", "copied", "variables", "told"),
    [
        (0.3, 0.0, {}, True),
        (0.02, 0.0, {}, False),
        (0.3, 0.29, {}, False),
        (0.3, 0.0, {"MALLOC_TRIM_THRESHOLD_": "1099511627776"}, False),
        (0.3, 0.0, {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}, False),
    ],
)
def test_freed_memory_is_kept_where_it_is_fetched_anew_and_nothing_keeps_it(
    fresh: float, copied: float, variables: dict[str, str], told: bool
) -> None:
    numbers, trainer = {"fresh_memory": fresh}, {"own_copying": copied}
    settings: dict[str, str | float] = {f"env.{name}": value for name, value in variables.items()}
    found = finding("cpu.model_compute", share=0.9, numbers=numbers, trainer=trainer, settings=settings)
    assert ("Keep freed memory for the next step" in titles(found)) is told
    if told:
        assert found.fixes[0].predicted_speedup == pytest.approx(1 / 0.7)


@pytest.mark.parametrize(("neighbours", "told"), [(1.5, True), (0.0, False)])
def test_freed_memory_is_told_whoever_else_keeps_the_cores_busy(neighbours: float, told: bool) -> None:
    """Beside others that took two of three turns: 0.095 of the time, and 1.11 to 1.50 times the pace (measured)."""
    numbers = {"fresh_memory": 0.06, "neighbour_cores": neighbours, "job_cores": 0.4}
    beside = {"cpu.contention": 0.6}
    found = finding("cpu.model_compute", share=0.4, numbers=numbers, settings={"cores": 2.0}, beside=beside)
    assert ("Keep freed memory for the next step" in titles(found)) is told
    assert not told or found.predicted_speedup == pytest.approx(1 / (1 - 0.06 / 0.4))


def test_an_update_that_queues_for_cores_is_not_counted_with_its_queueing_twice() -> None:
    """A phase lasts as long as it queues: half of a job beside others is half of it without them."""
    numbers = {"neighbour_cores": 1.5, "job_cores": 0.5}
    settings: dict[str, str | float] = {"cores": 2.0, "update": "Adam"}
    beside = {"cpu.contention": 0.5}
    found = finding(
        "cpu.model_compute", share=0.5, numbers=numbers, settings=settings, beside=beside, optimizer=0.5
    )  # fmt: skip
    assert found.predicted_speedup == pytest.approx(1 / (1 - 0.75 * 0.5))
    assert found.fixes[0].speedup_range == pytest.approx((1 / (1 - 0.56 * 0.25), 1 / (1 - 0.88 * 0.5)))


def test_an_update_of_adagrad_goes_over_memory_less_often_in_one_call() -> None:
    settings: dict[str, str | float] = {"update": "Adagrad"}
    found = finding("cpu.model_compute", share=0.9, settings=settings, optimizer=0.5)
    assert found.predicted_speedup == pytest.approx(1 / (1 - 0.65 * 0.5))
    assert "fused=True" in changes(found)


def test_arithmetic_in_double_precision_could_take_half_the_time() -> None:
    title = "Compute in single precision"
    found = finding("cpu.model_compute", numbers={"double_precision": 1.0})
    assert titles(found)[0] == title
    assert found.predicted_speedup == pytest.approx(1 / (1 - found.share / 2))
    with_convolutions = finding("cpu.model_compute", numbers={"double_precision": 1.0, "double_unfolding": 0.05})
    assert with_convolutions.predicted_speedup == pytest.approx(1 / (1 - 0.67 * found.share))
    assert title not in titles(finding("cpu.model_compute", numbers={"double_precision": 0.05}))


@pytest.mark.parametrize(("part", "told"), [(0.6, True), (0.02, False)])
def test_convolutions_are_left_to_onednn(part: float, told: bool) -> None:
    numbers = {"without_onednn": part, "trainer_running": 1.0}
    found = finding("cpu.model_compute", share=0.9, numbers=numbers)
    assert ("Let oneDNN do the convolutions" in titles(found)) is told
    assert not told or found.predicted_speedup == pytest.approx(1 / (1 - 0.9 * part))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ATEN_CPU_CAPABILITY", "default", True),
        ("ATEN_CPU_CAPABILITY", "AVX512", False),
        ("ONEDNN_MAX_CPU_ISA", "SSE41", True),
        ("DNNL_MAX_CPU_ISA", "DEFAULT", False),
        ("MKL_ENABLE_INSTRUCTIONS", "SSE4_2", True),
        ("MKL_CBWR", "COMPATIBLE", True),
        ("MKL_CBWR", "AUTO,STRICT", False),
    ],
)
def test_arithmetic_gets_all_instructions_of_the_cpu(name: str, value: str, told: bool) -> None:
    found = finding("cpu.model_compute", share=0.9, settings={f"env.{name}": value})
    assert (f"unset {name}" in changes(found)) is told


@pytest.mark.parametrize(("part", "told"), [(0.2, True), (0.005, False)])
def test_reductions_that_are_set_up_for_each_number_are_told(part: float, told: bool) -> None:
    """What is set up is a third to a quarter of what they take."""
    numbers = {"reducing_by_number": part, "trainer_running": 0.9}
    found = finding("cpu.model_compute", share=0.9, numbers=numbers)
    assert ("Reduce few elements by operations on whole tensors" in titles(found)) is told
    assert not told or found.predicted_speedup == pytest.approx(1 / (1 - 3.3 * 0.9 * part))


@pytest.mark.parametrize(("part", "told"), [(0.4, True), (0.005, False)])
def test_ffts_of_an_awkward_length_are_told(part: float, told: bool) -> None:
    numbers = {"long_ffts": part, "trainer_running": 0.9}
    found = finding("cpu.model_compute", share=0.9, numbers=numbers)
    assert ("Let FFTs have a length that is a product of small primes" in titles(found)) is told
    assert not told or found.predicted_speedup == pytest.approx(1 / (1 - 0.7 * 0.9 * part), abs=0.01)


@pytest.mark.parametrize(
    ("place", "backward", "told"), [("", 0.6, None), ("t.py:9 main", 0.02, None), ("t.py:9 main", 0.6, 1.82)]
)
def test_gradients_that_nobody_uses_are_not_computed(place: str, backward: float, told: float | None) -> None:
    settings: dict[str, str | float] = {"trains_part": place} if place else {}
    found = finding("cpu.model_compute", share=0.95, settings=settings, backward=backward)
    fixes = {fix.title: fix for fix in worded_fixes(found)}
    fix = fixes.get("Compute no gradients of what is not trained")
    assert (fix.predicted_speedup if fix else None) == (told if told is None else pytest.approx(told, abs=0.01))


PHASES = {"forward": 0.3, "loss": 0.1, "backward": 0.5}


def test_a_pass_whose_gradients_are_cleared_is_made_without_them() -> None:
    """Of the backward pass goes as much as the call is of the forward pass."""
    settings: dict[str, str | float] = {"unused_pass": "gan.py:9 critic_step"}
    found = finding("cpu.model_compute", share=0.95, settings=settings, numbers={"unused_pass": 0.2}, **PHASES)
    fix = next(fix for fix in worded_fixes(found) if "does not step" in fix.title)
    assert fix.predicted_speedup == pytest.approx(1 / 0.75)
    assert "gan.py:9 critic_step" in fix.why
    larger = finding("cpu.model_compute", share=0.95, settings=settings, numbers={"unused_pass": 0.3}, **PHASES)
    ranges = [fix.speedup_range for fix in worded_fixes(larger) if "does not step" in fix.title]
    assert ranges == [
        pytest.approx((1 / (1 - 0.1875), 1 / (1 - 0.4375)))
    ]  # half of what the rest is said to take stays
    unseen = finding("cpu.model_compute", share=0.95, settings=settings, **PHASES)
    assert next(fix for fix in worded_fixes(unseen) if "does not step" in fix.title).predicted_speedup is None


def test_what_nobody_trains_is_told_to_get_no_gradients() -> None:
    settings: dict[str, str | float] = {"unused_pass": "kd.py:9 main", "untrained": "self.teacher"}
    found = finding("cpu.model_compute", share=0.9, settings=settings, numbers={"unused_pass": 0.2}, **PHASES)
    [fix] = [fix for fix in worded_fixes(found) if "gradients" in fix.title]
    assert fix.predicted_speedup == pytest.approx(1 / 0.75)
    assert fix.speedup_range == pytest.approx((1 / 0.875, 1 / 0.525))
    assert fix.change.startswith("self.teacher.requires_grad_(False)")
    del settings["unused_pass"]  # its statement computes other things as well
    found = finding("cpu.model_compute", share=0.9, settings=settings, **PHASES)
    assert [fix.predicted_speedup for fix in worded_fixes(found) if "gradients" in fix.title] == [None]


@pytest.mark.parametrize(
    ("late", "told", "test"), [(0.26, "a step would be 26% shorter", "same batch"), (0.0, "", "Halve")]
)
def test_work_that_ranks_have_more_of_is_tested_by_giving_them_the_same(late: float, told: str, test: str) -> None:
    waits = ({1: 10 * late} if late else {}, {})
    trainers = tuple(Trainer(rank, 100 + rank, waits[rank], {}, {}, (), 0, 0, {}) for rank in range(2))
    case = Case({"cpu.model_compute": 1.0}, trainers, {}, {}, {}, late={"cpu.model_compute": late})
    found = worded_finding(find(case)[0][0])
    assert told in str(found.summary)
    assert test in str(found.refuted_by)
    assert titles(found) == (["Give all ranks equal work"] if late else [])


@pytest.mark.parametrize(("part", "told"), [(0.26, True), (0.62, False)])
def test_arithmetic_that_multiplies_little_is_remarked_on(part: float, told: bool) -> None:
    found = finding("cpu.model_compute", share=0.9, numbers={"multiplying": part})
    assert ("Only 26% of that is matrix products" in worded(found.summary)) is told


def test_the_function_that_goes_over_whole_tensors_most_is_named() -> None:
    whole = (("t.py:84 Smoothing.forward", 0.4), ("t.py:20 gather", 0.2))
    found = finding("cpu.model_compute", share=0.9, whole=whole)
    fix = next(fix for fix in worded_fixes(found) if "fewer times" in fix.title)
    assert fix.change == "Smoothing.forward = torch.compile(Smoothing.forward)  # once, before the loop"
    assert fix.predicted_speedup == pytest.approx(1 / (1 - 0.55 * 0.4))
    inner = finding("cpu.model_compute", share=0.9, whole=(("t.py:9 main.<locals>.criterion", 0.4),))
    assert "Let criterion go over its tensors fewer times" in titles(inner)


@pytest.mark.parametrize(
    ("share", "settings", "detour"),
    [(0.05, {}, False), (0.4, {"compiled": "yes"}, False), (0.4, {}, True)],
)
def test_nothing_is_compiled_that_takes_little_is_compiled_or_has_something_better(
    share: float, settings: dict[str, str | float], detour: bool
) -> None:
    line = "t.py:84 Smoothing.forward"
    piece = (Piece("self.loss", "self.loss(scores.flatten(0, 1), y.flatten())", ""),)
    detours = (CostlyDetour("turned", line, frozenset((line,)), piece, 0.4, "cpu.model_compute"),) if detour else ()
    found = finding("cpu.model_compute", share=0.9, settings=settings, whole=((line, share),), detours=detours)
    assert not any("fewer times" in title for title in titles(found))
