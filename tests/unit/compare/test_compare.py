"""Two runs side by side: pairs with a known change, many times over; what forbids a comparison; what came true."""

import random
import statistics
from typing import Any

import pytest

from perfdoctor.causes import INPUT_PREPROCESSING, MODEL_COMPUTE
from perfdoctor.diagnosis import BACKWARD_PASSES, OPTIMIZER_STEPS
from perfdoctor.errors import PerfDoctorError
from perfdoctor.results.comparison import Answer, Comparison, Promise, Weight
from tests.builders.comparisons import SETTINGS, blocks, compared, finding, report, side, step_times

# How runs of 15 s vary: a little, like a job on a shared machine, or with a step now and then that takes much longer.
STEADY = {"noise": 0.03, "memory": 0.5}
WANDERING = {"noise": 0.06, "memory": 0.9}
STALLING = {"noise": 0.03, "memory": 0.5, "stalls": 0.01}


def answers(times: float, step_s: float, how: dict[str, float], pairs: int = 100) -> list[Answer]:
    """What is said of so many pairs of runs, the second of which takes so many times as long for a step."""
    found = []
    for pair in range(pairs):
        before = report(step_times(2 * pair, step_s, **how))
        after = report(step_times(2 * pair + 1, step_s * times, **how))
        pace = compared(before, after).pace
        assert pace is not None
        found.append(pace.answer)
    return found


@pytest.mark.parametrize("step_s", [0.05, 0.4])
@pytest.mark.parametrize("how", [STEADY, WANDERING, STALLING], ids=["steady", "wandering", "stalling"])
def test_runs_without_a_change_hardly_ever_differ(step_s: float, how: dict[str, float]) -> None:
    """At most one false alarm in twenty is allowed."""
    assert sum(one in (Answer.FASTER, Answer.SLOWER) for one in answers(1.0, step_s, how)) <= 5


@pytest.mark.parametrize(("times", "answer"), [(1.06, Answer.SLOWER), (1 / 1.06, Answer.FASTER)])
def test_changes_of_six_percent_are_found_in_steady_runs(times: float, answer: Answer) -> None:
    found = answers(times, 0.05, STEADY)
    assert found.count(answer) >= 95
    assert set(found) <= {answer, Answer.SAME}


@pytest.mark.parametrize(("how", "found"), [(WANDERING, 95), (STALLING, 80)], ids=["wandering", "stalling"])
def test_changes_of_thirty_percent_are_mostly_found_in_any_runs(how: dict[str, float], found: int) -> None:
    assert answers(1.3, 0.05, how).count(Answer.SLOWER) >= found


def test_the_fewer_steps_the_more_often_too_little_was_watched_to_tell() -> None:
    """An interval from a thousandth of the pace to a thousand times is no answer, nor is a noise floor of that kind."""
    unsure = [answers(1.0, step_s, STALLING).count(Answer.UNKNOWN) for step_s in (0.05, 0.4, 1.0)]
    assert unsure == sorted(unsure)
    assert unsure[0] == 0 < unsure[1]


def test_a_pace_of_which_too_little_was_watched_has_no_interval_and_is_no_pass() -> None:
    few = [0.1, 0.1, 0.4, 0.1, 1.4, 0.2, 0.1, 1.0]
    pace = (found := compared(report(few), report(few[::-1]), 0.05)).pace
    assert pace is not None
    assert pace.floor is not None
    assert pace.floor > 1
    assert (pace.answer, pace.speedup.low, pace.speedup.high) == (Answer.UNKNOWN, None, None)
    assert found.regressed is None


def counted(times: list[float], unit: str) -> dict[str, Any]:
    made = report(times)
    return {**made, "steps": {**made["steps"], "unit": unit}}


def test_runs_whose_steps_were_counted_alike_have_a_pace() -> None:
    found = compared(counted([0.1] * 150, OPTIMIZER_STEPS), counted([0.08] * 180, OPTIMIZER_STEPS))
    assert found.before.step_is == OPTIMIZER_STEPS
    assert found.pace is not None
    assert found.pace.answer is Answer.FASTER
    assert found.pace.speedup.value == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (counted([0.1] * 150, OPTIMIZER_STEPS), counted([0.1] * 150, BACKWARD_PASSES)),
        (counted([0.1] * 150, OPTIMIZER_STEPS), report([0.1] * 150)),
        ({**report([0.1] * 150), "steps": {"profiled": {}}}, report([0.1] * 150)),
    ],
)
def test_what_was_not_counted_alike_is_not_compared(before: dict[str, Any], after: dict[str, Any]) -> None:
    found = compared(before, after)
    assert found.pace is None
    assert [one.what for one in found.forbidding] == ["steps"]


def test_a_difference_below_the_noise_floor_is_none_however_sure() -> None:
    exact = report([0.1] * 150), report([0.1015] * 150)
    pace = compared(*exact).pace
    assert pace is not None
    assert pace.answer is Answer.SAME
    assert pace.floor == pytest.approx(0.02)
    assert pace.speedup.value == pytest.approx(1 / 1.015)


def test_the_noise_floor_is_what_the_runs_vary_by() -> None:
    quiet, noisy = (
        compared(report(step_times(1, 0.1, noise=n)), report(step_times(2, 0.1, noise=n))) for n in (0.02, 0.4)
    )
    assert quiet.pace is not None
    assert noisy.pace is not None
    assert quiet.pace.floor is not None
    assert noisy.pace.floor is not None
    assert quiet.pace.floor < 0.05 < noisy.pace.floor


def test_the_cause_that_has_changed_is_told_from_those_that_have_not() -> None:
    before = report(step_times(1, 0.1), parts={INPUT_PREPROCESSING: 0.4, MODEL_COMPUTE: 0.6})
    after = report(step_times(2, 0.08), parts={INPUT_PREPROCESSING: 0.25, MODEL_COMPUTE: 0.75})
    found = {one.cause: one for one in compared(before, after).causes}
    assert found[MODEL_COMPUTE].answer is Answer.SAME
    assert found[INPUT_PREPROCESSING].answer is Answer.FASTER
    assert found[INPUT_PREPROCESSING].before == pytest.approx(0.04, rel=0.05)
    assert found[INPUT_PREPROCESSING].after == pytest.approx(0.02, rel=0.05)


def unmarked(times: list[float], parts: dict[str, float]) -> dict[str, Any]:
    """A report of a job that was watched from outside."""
    made = report(times, parts=parts)
    return {**made, "steps": {}, "blocks": [{**block, "steps": None} for block in made["blocks"]]}


def test_without_steps_shares_are_compared_and_no_pace() -> None:
    found = compared(
        unmarked(step_times(1, 0.1), {INPUT_PREPROCESSING: 0.4, MODEL_COMPUTE: 0.6}),
        unmarked(step_times(2, 0.1), {INPUT_PREPROCESSING: 0.2, MODEL_COMPUTE: 0.8}),
    )
    assert found.pace is None
    shares = {one.cause: (round(one.before, 3), round(one.after, 3), one.answer) for one in found.causes}
    assert shares == {MODEL_COMPUTE: (0.6, 0.8, Answer.SLOWER), INPUT_PREPROCESSING: (0.4, 0.2, Answer.FASTER)}
    assert found.implied is not None
    assert found.implied.value == pytest.approx(0.8 / 0.6, rel=0.01)


def briefly(*shares: float) -> dict[str, Any]:
    """A report of blocks of half a second, of which so much goes into the input."""
    spent = [{INPUT_PREPROCESSING: share / 2, MODEL_COMPUTE: 0.5 - share / 2} for share in shares]
    mean = statistics.fmean(shares)
    made = report(parts={INPUT_PREPROCESSING: mean, MODEL_COMPUTE: 1 - mean})
    return {**made, "blocks": [{"seconds": 0.5, "steps": None, "causes": causes} for causes in spent]}


def test_shares_of_a_brief_watch_stay_within_what_is_possible() -> None:
    """Whatever is reported of them: neither below 0 nor above 1, and no change by more than either leaves room for."""
    chance, told = random.Random(3), 0
    for _ in range(200):
        alike = 10 ** chance.uniform(0, 4)  # blocks; around shares that may be near 0 or 1
        means = [chance.betavariate(0.5, 0.5) * 0.98 + 0.01 for _ in range(2)]
        found = compared(
            *(
                briefly(*(chance.betavariate(alike * mean, alike * (1 - mean)) for _ in range(chance.randrange(2, 16))))
                for mean in means
            )
        )
        for one in found.causes:
            assert (one.change.low is None) == (one.change.high is None) == (one.answer is Answer.UNKNOWN)
            if one.change.low is not None and one.change.high is not None:
                told += 1
                assert -1 <= one.change.low <= one.change.value <= one.change.high <= 1
                assert one.change.high - one.change.low <= 0.5 or one.answer is not Answer.SAME
        if found.implied is not None:
            assert found.implied.low is not None
            assert found.implied.low > 0
    assert told > 20


@pytest.mark.parametrize("shares", [(0.5, 0.6), (0.1, 0.9, 0.2, 0.8, 0.5, 0.4)], ids=["two blocks", "six that differ"])
def test_where_too_little_was_watched_to_tell_no_change_is_claimed(shares: tuple[float, ...]) -> None:
    found = compared(briefly(*shares), briefly(*reversed(shares), 0.5))
    assert {(one.answer, one.change.low) for one in found.causes} == {(Answer.UNKNOWN, None)}
    assert found.implied is None


def test_causes_of_traced_steps_go_with_the_pace_of_the_marked_ones() -> None:
    """As in a recording whose GPU was traced: blocks with steps, and others with causes."""

    def traced(seed: int, step_s: float) -> dict[str, Any]:
        made = report(step_times(seed, step_s))
        paced = [{**block, "causes": {}} for block in made["blocks"]]
        return {**made, "blocks": [*paced, *({**block, "steps": None} for block in blocks([0.5] * 10))]}

    found = compared(traced(1, 0.1), traced(2, 0.2))
    assert found.pace is not None
    assert found.pace.answer is Answer.SLOWER
    cost = next(one for one in found.causes if one.cause == MODEL_COMPUTE)
    assert (cost.before, cost.after) == pytest.approx((0.06, 0.12), rel=0.1)
    assert cost.answer is Answer.SLOWER


def test_reports_of_older_versions_have_a_pace_without_an_interval() -> None:
    old = {name: value for name, value in report([0.1] * 100).items() if name != "blocks"}
    found = compared(old, report([0.05] * 200), 0.05)
    assert found.pace is not None
    assert found.pace.answer is Answer.UNKNOWN
    assert found.pace.speedup.value == pytest.approx(2.0)
    assert found.regressed is None


@pytest.mark.parametrize(
    ("more", "what", "weight"),
    [
        ({"job": {"world_size": 2}}, "world_size", Weight.FORBIDS),
        ({"job": {"traces": ["a.json"]}}, "steps", Weight.FORBIDS),
        ({"job": {"settings": {**SETTINGS, "on_gpu": "yes"}}}, "settings.on_gpu", Weight.FORBIDS),
        ({"job": {"settings": {**SETTINGS, "cpu_model": "Xeon"}}}, "settings.cpu_model", Weight.EXPLAINS),
        ({"job": {"torch": "2.9"}}, "torch", Weight.EXPLAINS),
        ({"job": {"neighbour_cores": 1.5}}, "neighbour_cores", Weight.EXPLAINS),
        ({"job": {"watched_seconds": 300}}, "watched_seconds", Weight.EXPLAINS),
        ({"perfdoctor": "9.9"}, "perfdoctor", Weight.EXPLAINS),
        ({"job": {"settings": {**SETTINGS, "workers": 6.0}}}, "settings.workers", Weight.NOTED),
        ({"job": {"settings": {**SETTINGS, "env.OMP_NUM_THREADS": "1"}}}, "settings.env.OMP_NUM_THREADS", Weight.NOTED),
        ({"job": {"settings": {**SETTINGS, "env.LD_PRELOAD": "x.so"}}}, "settings.env.LD_PRELOAD", Weight.NOTED),
        ({"job": {"command": "python train.py --batch-size 2"}}, "command", Weight.NOTED),
    ],
)  # fmt: skip
def test_what_is_not_the_same_is_named(more: dict[str, Any], what: str, weight: Weight) -> None:
    before = report([0.1] * 150, job={"neighbour_cores": 0.1, "torch": "2.8"})
    after = report([0.1] * 150, **{**more, "job": {"neighbour_cores": 0.1, "torch": "2.8", **more.get("job", {})}})
    found = compared(before, after)
    assert [(one.what, one.weight) for one in found.differences] == [(what, weight)]
    assert (found.pace is None) == (weight is Weight.FORBIDS)


def test_what_launchers_set_anew_and_what_is_counted_do_not_differ() -> None:
    names = ("env.MASTER_PORT", "env.TORCHELASTIC_RUN_ID", "env.RANK")
    before = report([0.1] * 150, job={"settings": {**SETTINGS, "trainer_threads": 20.0, **dict.fromkeys(names, "1")}})
    after = report([0.1] * 150, job={"settings": {**SETTINGS, "trainer_threads": 22.0, **dict.fromkeys(names, "2")}})
    assert compared(before, after).differences == ()


def test_a_trace_tells_of_hardly_any_setting_and_differs_in_none_of_the_others() -> None:
    trace = report([0.1] * 150)
    trace["job"] = {"traces": ["a.json"], "world_size": 1, "watched_seconds": 15.0}
    assert [one.what for one in compared(report([0.1] * 150), trace).differences] == ["steps"]


@pytest.mark.parametrize(
    ("step_s", "promised", "promise"),
    [
        (0.08, (1.25, 1.1, 1.4), Promise.KEPT),
        (0.08, (2.0, 1.6, 2.5), Promise.LESS),
        (0.05, (1.25, 1.1, 1.4), Promise.MORE),
        (0.1, (1.25, 1.2, 1.4), Promise.NOT_SEEN),
        (0.12, (1.25, 1.2, 1.4), Promise.LESS),
        (0.1, (1.01, 1.0, 1.02), Promise.UNKNOWN),
    ],
)
def test_what_was_predicted_is_held_against_what_is_measured(
    step_s: float, promised: tuple[float, float, float], promise: Promise
) -> None:
    before = report(step_times(1, 0.1), findings=[finding(*promised)])
    prediction = compared(before, report(step_times(2, step_s))).prediction
    assert prediction is not None
    assert prediction.promise is promise
    assert (prediction.speedup, prediction.least, prediction.most) == promised


@pytest.mark.parametrize("step_s", [0.08, 0.1, 0.16])
def test_what_makes_a_step_other_work_is_not_held_against_the_time_of_a_step(step_s: float) -> None:
    """Twice the batch in 1.6 times the time is the gain that was promised."""
    before = report(step_times(1, 0.1), findings=[finding(1.25, 1.1, 1.4, changes_step=True)])
    prediction = compared(before, report(step_times(2, step_s))).prediction
    assert prediction is not None
    assert (prediction.promise, prediction.changes_step) == (Promise.UNKNOWN, True)


@pytest.mark.parametrize(
    ("step_s", "command", "other"),
    [
        (0.16, "python train.py --batch-size 2", True),
        (0.08, "python train.py --batch-size 2", True),
        (0.1, "python train.py --batch-size 2", False),
        (0.16, "python train.py", False),
    ],
)
def test_where_pace_and_command_differ_a_step_may_be_other_work(step_s: float, command: str, other: bool) -> None:
    found = compared(report(step_times(1, 0.1)), report(step_times(2, step_s), job={"command": command}))
    assert found.may_be_other_work is other


def test_where_no_gain_was_computed_none_is_held_against_anything() -> None:
    assert compared(report([0.1] * 150, findings=[finding(None)]), report([0.1] * 150)).prediction is None


def limited(times: float, limit: float, noise: float = 0.02) -> Comparison:
    return compared(report(step_times(1, 0.1, noise=noise)), report(step_times(2, 0.1 * times, noise=noise)), limit)


@pytest.mark.parametrize(
    ("times", "limit", "regressed"), [(1.3, 0.05, True), (1.3, 0.5, False), (1.0, 0.05, False), (0.7, 0.0, False)]
)
def test_a_regression_lies_beyond_the_limit_with_all_of_its_interval(
    times: float, limit: float, regressed: bool
) -> None:
    assert limited(times, limit).regressed is regressed


def test_what_may_be_a_regression_is_none() -> None:
    found = limited(1.06, 0.05)
    assert found.pace is not None
    assert found.pace.speedup.low is not None
    assert 1 / found.pace.speedup.low - 1 > 0.05
    assert found.regressed is False


@pytest.mark.parametrize(
    ("times", "limit", "regressed"),
    [
        (1.0, 0.05, None),
        (1.06, 0.05, None),
        (1.4, 0.25, None),  # slower, and perhaps within the limit
        (1.4, 0.05, True),
        (1.4, 1.5, False),
        (0.4, 0.05, False),
    ],
)
def test_what_could_not_have_been_found_is_no_pass(times: float, limit: float, regressed: bool | None) -> None:
    found = limited(times, limit, noise=0.3)
    assert found.pace is not None
    assert found.pace.floor is not None
    assert 0.2 < found.pace.floor < 0.4
    assert found.regressed is regressed
    assert found.hidden_by_noise is (regressed is None)


NOTHING = {
    **report(parts={"unattributed": 1.0}),
    "verdict": {"cause": None, "level": "sampled from outside", "summary": "Nobody trains."},
}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({**report([0.1] * 20), "schema": 7}, "schema 7"),
        ({**report([0.1] * 20), "breakdown": "no"}, "damaged"),
        ({**report([0.1] * 20), "blocks": [{"seconds": "x", "steps": 1, "causes": {}}]}, "damaged"),
        (NOTHING, "Nobody trains"),
    ],
)
def test_reports_that_tell_nothing_are_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(PerfDoctorError, match=message) as refused:
        side(document)
    assert refused.value.hint
