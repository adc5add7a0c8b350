"""What each fix is said to bring: its own part of the cause, with the range in which that lies."""

from dataclasses import replace

import pytest

from perfdoctor.causes import EVALUATION
from perfdoctor.diagnosis import Evidence, Fix, expected_freed
from perfdoctor.metrics.own_loops import CostlyLoop
from perfdoctor.reports.language import language
from perfdoctor.reports.wording import worded_finding
from perfdoctor.rules import find
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.gains import CHANGES_STEP, GAINS, PRICES
from perfdoctor.rules.proposed import Gain
from perfdoctor.rules.rule import times_rarer
from tests.builders.cases import finding
from tests.unit.reports.test_words import said

PYTHON = "cpu.python_overhead"


def case_of(cause: str, share: float, *, updating: float | None = None, optimizer: float = 0.0) -> Case:
    numbers = {} if updating is None else {"own_updating": Evidence("", updating, "", "test")}
    trainer = Trainer(0, 100, {}, {"optimizer": optimizer}, {}, (), 0, numbers=numbers)
    return Case({cause: share, "cpu.model_compute": 1 - share}, (trainer,), {})


def fixes_of(case: Case, cause: str) -> dict[str, Fix]:
    found, _ = find(case)
    finding = worded_finding(next(one for one in found if one.cause == cause))
    return {fix.title: fix for fix in finding.fixes if isinstance(fix, Fix)}


def test_every_estimate_is_for_a_piece_of_advice() -> None:
    assert GAINS.keys() - {one.id for one in said()} == set()


@pytest.mark.parametrize(
    ("busy", "cores", "speedup", "first"),
    [
        (1.0, 4.0, 1.0, True),  # what is saved is waited for batches
        (0.85, 4.0, 1 / 0.85, False),
        (0.5, 4.0, 1.25, False),  # batches are ready
        (1.0, 2.0, 1.25, False),  # cores are short: workers are slow because the trainer computes
    ],
)
def test_what_workers_need_is_left_whatever_the_trainer_saves(
    busy: float, cores: float, speedup: float, first: bool
) -> None:
    measured = {"worker_busy": busy, "workers_busy": busy, "job_cores": 1.8, "collected_by_hand": 1.0}
    numbers = {name: Evidence("", value, "", "test") for name, value in measured.items()}
    trainer = Trainer(0, 1, {}, {"data": 0.3}, {}, (), 1, 0, {})
    shares = {"cpu.garbage_collection": 0.2, "cpu.input_preprocessing": 0.3, "cpu.model_compute": 0.5}
    found = {one.cause: one for one in find(Case(shares, (trainer,), {}, numbers, {"cores": cores}))[0]}
    collecting, supply = found["cpu.garbage_collection"], found["cpu.input_preprocessing"]
    assert collecting.predicted_speedup == pytest.approx(speedup)
    assert (collecting.fixes[0].speedup_range or (0, 0))[1] == pytest.approx(1.25)
    assert ("once the input keeps up" in str(worded_finding(collecting).summary)) == first
    assert (supply.predicted_speedup or 0) > 1.2
    assert "once the input keeps up" not in str(worded_finding(supply).summary)


@pytest.mark.parametrize(("share", "times"), [(0.2, 1 / 0.8), (0.5, 2.0), (0.9, 1 / 0.9)])
def test_copies_hide_behind_no_more_than_the_rest(share: float, times: float) -> None:
    found = worded_finding(finding("gpu.host_transfer", share=share, numbers={"traced_pageable": 0.0}))
    overlapped = next(fix for fix in found.fixes if fix.title == "Copy without waiting")
    assert overlapped.speedup_range == (1.0, pytest.approx(times))


def test_what_changes_a_step_says_so_beside_its_gain() -> None:
    assert GAINS.keys() >= CHANGES_STEP
    fixes = fixes_of(case_of(PYTHON, 0.5), PYTHON)
    larger = fixes.pop("Use a larger batch")
    assert larger.predicted_speedup is not None
    assert larger.changes_step
    assert not any(fix.changes_step for fix in fixes.values())


def test_what_gives_something_up_says_so_and_stands_behind_what_does_not() -> None:
    assert GAINS.keys() >= PRICES.keys()
    saving = "io.checkpoint_write"
    found = worded_finding(finding(saving, share=0.3))
    titles = [fix.title for fix in found.fixes]
    rarely = next(fix for fix in found.fixes if fix.title.startswith("Save 9 times"))
    assert "Its price: after a crash" in rarely.why
    assert titles.index("Save while training goes on") < titles.index(rarely.title)
    assert expected_freed(rarely) > expected_freed(found.fixes[0])
    with language("zh"):
        assert "代价" in worded_finding(finding(saving, share=0.3)).fixes[titles.index(rarely.title)].why


def test_a_line_is_promised_its_own_part_and_no_more() -> None:
    lines = {PYTHON: (("/job/train.py:12 loop", 0.6), ("/job/train.py:20 rest", 0.4))}
    fix = fixes_of(replace(case_of(PYTHON, 0.5), lines=lines), PYTHON)[
        "Use fewer, larger operations at /job/train.py:12 loop"
    ]
    assert fix.predicted_speedup == pytest.approx(1 / (1 - 0.5 * 0.6))
    assert fix.speedup_range == (1.0, fix.predicted_speedup)


@pytest.mark.parametrize(("neighbours", "job", "freed"), [(1.5, 0.6, 0.2 / 0.5), (0.0, 0.6, 0.2), (0.6, 1.9, 0.2)])
def test_work_that_goes_takes_its_queueing_with_it(neighbours: float, job: float, freed: float) -> None:
    """Beside others; where the job's own threads crowd the cores, they may be another part of it."""
    numbers = {"neighbour_cores": neighbours, "job_cores": job, "runnable_threads": 8.0}
    case = Case(
        {PYTHON: 0.3, "cpu.contention": 0.5, "cpu.model_compute": 0.2},
        (Trainer(0, 100, {}, {}, {}, (), 0),),
        {},
        {name: Evidence(name, value, "cores", "test") for name, value in numbers.items()},
        {"cores": 2.0},
        lines={PYTHON: (("/job/train.py:12 loop", 2 / 3), ("/job/train.py:20 rest", 1 / 3))},
    )
    fix = fixes_of(case, PYTHON)["Use fewer, larger operations at /job/train.py:12 loop"]
    assert fix.predicted_speedup == pytest.approx(1 / (1 - freed))


def test_the_line_of_the_optimizers_step_is_not_told_to_call_less() -> None:
    """Its operations are PyTorch's own: what the job itself calls is named, with its part of the whole."""
    case = replace(
        case_of(PYTHON, 0.8, updating=0.4, optimizer=0.45),
        lines={PYTHON: (("/job/train.py:33 <module>", 0.5), ("/job/train.py:17 Block.forward", 0.4))},
        called_lines={PYTHON: (("/job/train.py:17 Block.forward", 0.4),)},
    )
    fixes = fixes_of(case, PYTHON)
    assert "Use fewer, larger operations at /job/train.py:33 <module>" not in fixes
    fix = fixes["Use fewer, larger operations at /job/train.py:17 Block.forward"]
    assert fix.predicted_speedup == pytest.approx(1 / (1 - 0.8 * 0.4))


def test_a_loop_is_promised_the_calls_in_it_and_not_all_that_it_computes_beside_the_model() -> None:
    """As a histogram of each weight: what is large takes as long in one operation."""
    loop = CostlyLoop("/job/train.py:31 log", 0.1, computes=0.8)
    found = fixes_of(replace(case_of(PYTHON, 0.5), loops={PYTHON: (loop,)}), PYTHON)
    fix = found["Let one operation stand for the loop at /job/train.py:31 log"]
    assert fix.predicted_speedup == pytest.approx(1 / (1 - 0.05 - 0.15))
    assert "5% of the time" in fix.why
    assert "40%" in fix.why
    assert found["Use a larger batch"].predicted_speedup == pytest.approx(1 / (1 - 0.5 * 0.1 / 2))


def test_a_loop_is_promised_what_runs_in_it_and_without_one_nothing_is_told_of_loops() -> None:
    case = replace(
        case_of(PYTHON, 0.5),
        lines={PYTHON: (("/job/net.py:20 Net.forward", 0.6), ("/job/loss.py:7 pairs", 0.4))},
        loops={
            PYTHON: (CostlyLoop("/job/loss.py:6 pairs", 0.4),),
            "cpu.model_compute": (CostlyLoop("/job/loss.py:6 pairs", 0.2),),
        },
    )
    fixes = fixes_of(case, PYTHON)
    fix = fixes["Let one operation stand for the loop at /job/loss.py:6 pairs"]
    assert fix.predicted_speedup == pytest.approx(1 / (1 - 0.5 * 0.4 - 0.5 * 0.2 / 2))
    assert fix.speedup_range == pytest.approx((1.0, 1 / (1 - 0.5 * 0.4 - 0.5 * 0.2)))
    assert fixes["Use a larger batch"].predicted_speedup == pytest.approx(1 / (1 - 0.5 * 0.6 / 2))
    assert "20% of the time" in fix.why
    without = fixes_of(replace(case, loops={}), PYTHON)
    assert without.keys() == fixes.keys() - {fix.title}
    assert not any("larger operations" in title for title in without)


def test_a_loop_of_which_each_round_needs_the_last_keeps_its_rounds_unless_a_layer_does_all_of_them() -> None:
    lines = {PYTHON: (("/job/net.py:20 Net.forward", 1.0),)}
    loop = CostlyLoop("/job/net.py:19 Net.forward", 0.9, carries=True)
    kept = fixes_of(replace(case_of(PYTHON, 0.5), lines=lines, loops={PYTHON: (loop,)}), PYTHON)
    fix = kept["Let each round of the loop at /job/net.py:19 Net.forward work on more at once"]
    assert fix.predicted_speedup == pytest.approx(1 / 0.75)
    assert not any("one operation" in title or "larger batch" in title for title in kept)
    # A CPU has one call for the LSTM only, and none in double precision.
    for layer, double, part in ("LSTM", 0.0, 0.72), ("LSTM", 1.0, 0.225), ("GRU", 0.0, 0.45):
        cell = replace(loop, cell=f"{layer}Cell")
        precision = {"double_precision": Evidence("", double, "of it", "test")}
        case = replace(case_of(PYTHON, 0.5), lines=lines, loops={PYTHON: (cell,)}, numbers=precision)
        gone = fixes_of(case, PYTHON)
        title = f"Let torch.nn.{layer} go over the sequence, in place of the {layer}Cell in the loop at {loop.line}"
        assert gone[title].predicted_speedup == pytest.approx(1 / (1 - 0.5 * part))


def test_evaluating_more_rarely_frees_the_batches_for_it_too() -> None:
    """Of a job that evaluated for 0.45 of the time, 0.3 of it in the model, 1.4x was told and 1.8x measured."""
    case = case_of(EVALUATION, 0.3)
    whole = replace(case.trainers[0], numbers={"own_evaluating": Evidence("", 0.45, "of the time", "test")})
    finding = next(one for one in find(replace(case, trainers=(whole,)))[0] if one.cause == EVALUATION)
    fix = worded_finding(finding).fixes[0]
    rarer = 1 - 1 / times_rarer(0.45)
    assert fix.predicted_speedup == finding.predicted_speedup == pytest.approx(1 / (1 - rarer * 0.45))
    assert fix.speedup_range == pytest.approx((1 / (1 - rarer * 0.3), fix.predicted_speedup))


def test_where_no_training_was_seen_it_is_not_known_how_often_it_evaluates() -> None:
    case = case_of(EVALUATION, 0.3)
    whole = replace(case.trainers[0], numbers={"own_evaluating": Evidence("", 0.97, "of the time", "test")})
    finding = next(one for one in find(replace(case, trainers=(whole,)))[0] if one.cause == EVALUATION)
    assert finding.predicted_speedup == pytest.approx(1 / (1 - 0.3 * (1 - 1 / times_rarer(0.97))))


def test_an_optimizers_calls_go_and_its_arithmetic_may() -> None:
    case = replace(case_of(PYTHON, 0.5, updating=0.2, optimizer=0.3), settings={"update": "SGD"})
    fix = fixes_of(case, PYTHON)["Update all parameters in one call"]
    assert fix.predicted_speedup == pytest.approx(1 / 0.8)
    assert fix.speedup_range == pytest.approx((1 / 0.9, 1 / 0.7))


def test_an_update_is_for_all_samples_of_a_batch() -> None:
    """Twice the batch needs half as many updates, whatever else they compute."""
    fix = fixes_of(case_of(PYTHON, 0.2, updating=0.1, optimizer=0.5), PYTHON)["Use a larger batch"]
    assert fix.speedup_range is not None
    assert fix.predicted_speedup == pytest.approx(1 / (1 - 0.1 - 0.2))


def test_what_sampling_leaves_open_is_in_the_range() -> None:
    cause = "cpu.worker_startup"
    fix = fixes_of(replace(case_of(cause, 0.4), ranges={cause: (0.3, 0.5)}), cause)["Keep the workers between epochs"]
    assert fix.predicted_speedup == pytest.approx(1 / 0.6)
    assert fix.speedup_range == pytest.approx((1 / 0.7, 2.0))


def test_the_surer_of_two_fixes_that_free_as_much_comes_first() -> None:
    cause = "cpu.garbage_collection"
    (first, second, *_) = fixes_of(case_of(cause, 0.5), cause).values()
    assert first.predicted_speedup == second.predicted_speedup == pytest.approx(2.0)
    assert first.speedup_range is not None
    assert first.speedup_range[0] > 1.5
    assert second.speedup_range == (1.0, pytest.approx(2.0))


def test_the_next_bottleneck_bounds_all_of_a_gain() -> None:
    assert Gain(0.3, 0.5, 0.8).within(0.6) == Gain(0.3, 0.4, 0.4)
    assert Gain(0.3, 0.5, 0.8).within(None) == Gain(0.3, 0.5, 0.8)


def test_a_call_that_collects_is_to_go_and_nothing_is_promised_of_disabling() -> None:
    cause = "cpu.garbage_collection"
    case = replace(
        case_of(cause, 0.5),
        numbers={"collected_by_hand": Evidence("", 0.9, "", "test")},
        lines={cause: (("/job/train.py:36 main", 1.0),)},
    )
    first = next(iter(fixes_of(case, cause).values()))
    assert first.title == "Take gc.collect() out of the step at /job/train.py:36 main"
    assert first.predicted_speedup == pytest.approx(1 / 0.55)
    assert "Collect at times of your choosing" not in fixes_of(case, cause)
