"""How many loader workers are advised, and what that is said to gain."""

import re
from dataclasses import replace

import pytest

from perfdoctor.diagnosis import Evidence, Finding
from perfdoctor.knowledge.thresholds import HANDED_OVER, LOST_BESIDE
from perfdoctor.reports.wording import worded_finding, worded_fixes
from perfdoctor.rules import find
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.workers import WorkerPlan, plan_workers
from tests.builders.cases import finding, titles

CAUSE = "cpu.input_preprocessing"


def job(
    data: float,
    workers: int,
    *,
    cause: str = CAUSE,
    ranks: int = 1,
    numbers: dict[str, float] | None = None,
    trainer: dict[str, float] | None = None,
    settings: dict[str, str | float] | None = None,
    helpers: int = 0,
) -> Case:
    own = {name: Evidence(name, value, "", "test") for name, value in (trainer or {}).items()}
    trainers = tuple(
        Trainer(rank, 100 + rank, {}, {"data": data}, {}, (), workers, helpers, own) for rank in range(ranks)
    )
    measured = {name: Evidence(name, value, "", "test") for name, value in (numbers or {}).items()}
    return Case({cause: data, "cpu.model_compute": 1 - data}, trainers, {}, measured, settings or {})


def first(case: Case, cause: str = CAUSE) -> Finding:
    found, _ = find(case)
    return worded_finding(next(finding for finding in found if finding.cause == cause))


def advised(finding: Finding) -> str | None:
    changes = [re.search(r"DataLoader\(.*?num_workers=(\d+)", fix.change, re.DOTALL) for fix in worded_fixes(finding)]
    return next((found[1] for found in changes if found), None)


def paces(finding: Finding) -> dict[str, float]:
    return {fix.title: fix.predicted_speedup for fix in worded_fixes(finding) if fix.predicted_speedup is not None}


def plan(case: Case) -> WorkerPlan:
    found = plan_workers(case, CAUSE)
    assert found is not None
    return found


def test_of_a_call_that_is_known_to_be_slow_a_part_is_sure_to_be_spared() -> None:
    lines = ("/job/data.py:9 Loops.read",)
    known = finding(CAUSE, calls={"PIL GifImageFile.seek": 0.8}, lines=lines)
    other = finding(CAUSE, calls={"PIL Image.resize": 0.8}, lines=lines)
    for found, least in ((known, 1 / (1 - 0.5 * 0.4)), (other, 1.0)):
        fix = next(fix for fix in worded_fixes(found) if fix.title.endswith("cheaper"))
        assert fix.speedup_range is not None
        assert fix.speedup_range[0] == pytest.approx(least)


def test_needed_workers_are_busy_time_by_own_time() -> None:
    """A trainer that waits 60 % of the time for 2 busy workers needs ceil(2 / 0.4) = 5."""
    found = plan(job(0.6, 2, numbers={"workers_busy": 2.0, "job_cores": 2.4}, settings={"cores": 16.0}))
    assert (found.needed, found.useful) == (5, 5)
    assert found.pace == pytest.approx(0.4)


def test_without_workers_the_trainer_prepares_itself() -> None:
    """80 % of the time in preparation, 20 % in the model: ceil(0.8 / 0.2) = 4 workers hide it."""
    case = job(0.8, 0, numbers={"job_cores": 1.0}, settings={"cores": 16.0})
    assert plan(case).needed == 4
    found = first(case)
    assert advised(found) == "4"
    assert found.predicted_speedup == pytest.approx(1 / (0.8 / 4 * HANDED_OVER + 0.2 * LOST_BESIDE))


def test_on_a_gpu_what_is_handed_over_is_taken_while_it_computes() -> None:
    case = job(0.8, 0, numbers={"job_cores": 1.0}, settings={"cores": 16.0, "gpus": 1.0})
    assert plan(case).pace == pytest.approx(0.8 / 4 * HANDED_OVER)


def test_first_batches_are_waited_for_whatever_workers_there_are() -> None:
    """Of 80 % in the loader a quarter is for first batches, as with iterators of four: 20 % stay."""
    numbers = {"job_cores": 1.0, "first_batches": 0.25}
    found = first(job(0.8, 0, numbers=numbers, settings={"cores": 16.0}))
    assert found.predicted_speedup == pytest.approx(1 / (0.8 / 4 * HANDED_OVER + 0.2 * LOST_BESIDE + 0.2))


def test_of_first_batches_no_more_is_lost_than_the_trainer_needs_for_what_workers_have_made() -> None:
    """Of four batches that take 0.2 s each and 0.05 s of the trainer, two workers make two, and two more meanwhile.

    The trainer takes the first two then, and the last two afterwards: 0.2 + 0.2 + 2 * 0.05 s.
    """
    case = job(0.8, 0, numbers={"job_cores": 1.0, "first_batches": 0.25}, settings={"cores": 2.0})
    assert plan(case).pace == pytest.approx(0.5 + 0.1 + 0.2 * LOST_BESIDE)
    assert any("is waited for all the same: 0.1 s of each" in fix.why for fix in first(case).fixes)


def test_an_iterator_keeps_no_more_workers_busy_than_it_has_batches() -> None:
    case = job(0.8, 0, numbers={"job_cores": 1.0, "first_batches": 0.5}, settings={"cores": 16.0})
    assert (plan(case).needed, plan(case).useful) == (2, 2)


def test_starting_workers_is_no_making_of_first_batches() -> None:
    case = job(0.8, 1, numbers={"workers_busy": 0.4, "job_cores": 1.0, "first_batches": 0.5}, settings={"cores": 16.0})
    started = replace(case.trainers[0], shares={"cpu.worker_startup": 0.4})
    assert plan(case).first == pytest.approx(0.4)
    assert plan(replace(case, trainers=(started,))).first == pytest.approx(0.0)


def test_a_new_iterator_for_each_batch_leaves_workers_nothing_to_do_ahead() -> None:
    numbers = {"job_cores": 1.0, "first_batches": 1.0}
    found = first(job(0.8, 0, numbers=numbers, settings={"cores": 16.0}))
    assert advised(found) is None
    assert any("0.8 s go to first batches of an iterator" in fix.why for fix in worded_fixes(found))


def test_cores_limit_workers_and_the_promise() -> None:
    """On 2 cores one second's work of one core cannot take less than half a second."""
    case = job(0.8, 0, numbers={"job_cores": 1.0}, settings={"cores": 2.0})
    found = first(case)
    assert advised(found) == "2"
    assert paces(found)["Use 2 loader workers"] == pytest.approx(1 / (0.5 + 0.2 * LOST_BESIDE))
    assert any(
        "On 2 cores, of which the job keeps 1 busy already, more than 2 workers would gain nothing" in fix.why
        for fix in worded_fixes(found)
    )


def test_the_better_fix_comes_first_and_sets_the_findings_pace() -> None:
    """What workers gain is known; how much cheaper transforms can be made is not, so they come first only for more."""
    free = first(job(0.8, 0, numbers={"job_cores": 1.0}, settings={"cores": 2.0}))
    assert [fix.title for fix in free.fixes][:2] == ["Use 2 loader workers", "Make the dataset's transforms cheaper"]
    assert free.predicted_speedup == paces(free)["Use 2 loader workers"]
    full = first(job(0.8, 0, numbers={"job_cores": 1.5}, settings={"cores": 2.0}))
    assert full.fixes[0].title == "Make the dataset's transforms cheaper"
    assert full.predicted_speedup == paces(full)["Make the dataset's transforms cheaper"] == pytest.approx(5.0)


def test_fixes_without_a_computed_pace_keep_their_place() -> None:
    case = job(0.9, 1, cause="io.storage_read", numbers={"workers_busy": 1.0}, settings={"cores": 4.0})
    found = first(case, "io.storage_read")
    assert found.fixes[-1].predicted_speedup is None


# A trainer that prepares its batches for half of the time, and computes in two threads for the other half.
POOL = {"job_cores": 1.5, "trainer_running": 1.0, "trainer_cores": 1.5}


def test_workers_and_fewer_threads_go_together_where_threads_fill_the_cores() -> None:
    """Measured on 2 cores: a worker beside 2 threads made three models 1.0 to 1.5 times slower, beside 1 faster."""
    case = job(0.5, 0, numbers=POOL, settings={"cores": 2.0})
    assert (plan(case).threads, plan(case).useful) == (1, 1)
    fix = first(case).fixes[0]
    assert fix.title == "Use 1 loader worker and 1 compute thread"
    assert "torch.set_num_threads(1)" in fix.change
    least, most = fix.speedup_range or (0.0, 0.0)
    assert least == pytest.approx(1.0)  # half the threads may take twice the time
    assert 1.2 < fix.predicted_speedup <= most == pytest.approx(2.0)


def test_threads_stay_where_there_are_cores_for_workers() -> None:
    assert plan(job(0.5, 0, numbers=POOL, settings={"cores": 4.0})).threads is None
    alone = {"job_cores": 1.0, "trainer_running": 1.0, "trainer_cores": 1.0}
    assert plan(job(0.5, 0, numbers=alone, settings={"cores": 2.0})).threads is None


def test_neighbours_take_cores_away() -> None:
    alone = job(0.8, 0, numbers={"job_cores": 1.0}, settings={"cores": 4.0, "host_cores": 4.0})
    crowded = job(
        0.8, 0, numbers={"job_cores": 1.0, "neighbour_cores": 2.0}, settings={"cores": 4.0, "host_cores": 4.0}
    )
    assert paces(first(alone))["Use 4 loader workers"] == pytest.approx(1 / (0.25 + 0.2 * LOST_BESIDE))
    assert paces(first(crowded))["Use 2 loader workers"] == pytest.approx(1 / (0.5 + 0.2 * LOST_BESIDE))


def test_workers_are_promised_no_core_that_neighbours_keep_busy() -> None:
    numbers = {"job_cores": 0.4, "neighbour_cores": 1.6}
    assert plan(job(0.6, 0, numbers=numbers, settings={"cores": 2.0, "host_cores": 2.0})).pace == pytest.approx(1.0)


@pytest.mark.parametrize(("answered", "left"), [(0.6, 0.57), (0.0, 1.0)])
def test_who_waits_for_a_network_needs_no_core_for_that(answered: float, left: float) -> None:
    """It gets nine tenths of a core when it asks for one, which is more than neighbours leave over."""
    cause = "io.network_read" if answered else CAUSE
    running = 0.5 if answered else 0.9
    numbers = {
        "job_cores": running, "neighbour_cores": 1.6, "trainer_running": running, "trainer_run_delay": running / 9,
    }  # fmt: skip
    case = job(0.6, 0, cause=cause, numbers=numbers, settings={"cores": 2.0, "host_cores": 2.0})
    case = replace(case, trainers=(replace(case.trainers[0], shares={"io.network_read": answered}),))
    found = plan_workers(case, cause)
    assert found is not None
    assert found.pace == pytest.approx(left, abs=0.02)


def test_what_workers_gain_beside_neighbours_holds_the_queueing_already() -> None:
    """Half a core for one second takes half a second on the core that they leave, however long it queued before."""
    numbers = {"job_cores": 0.5, "neighbour_cores": 1.0, "runnable_threads": 1.0}
    case = job(0.8, 0, numbers=numbers, settings={"cores": 2.0, "host_cores": 2.0})
    case = replace(case, shares={CAUSE: 0.4, "cpu.contention": 0.5, "cpu.model_compute": 0.1})
    assert plan(case).pace == pytest.approx(0.5 + 0.2 * LOST_BESIDE)
    told = next(fix for fix in first(case).fixes if fix.title == "Use 2 loader workers")
    assert told.predicted_speedup == pytest.approx(1 / (0.5 + 0.2 * LOST_BESIDE))
    assert told.speedup_range == pytest.approx((1.0, 2.0))


def test_neighbours_on_other_cores_of_the_host_do_not() -> None:
    case = job(
        0.8,
        0,
        numbers={"job_cores": 1.0, "neighbour_cores": 2.0},
        settings={"cores": 4.0, "host_cores": 64.0},
    )
    assert paces(first(case))["Use 4 loader workers"] == pytest.approx(1 / (0.25 + 0.2 * LOST_BESIDE))


def test_no_more_workers_when_all_cores_are_taken() -> None:
    case = job(0.6, 2, numbers={"workers_busy": 2.0, "job_cores": 2.0}, settings={"cores": 2.0})
    found = first(case)
    assert advised(found) is None
    assert "More workers will not help: no core of the 2 that the job may use is free." in found.fixes[0].why
    assert found.predicted_speedup == pytest.approx(2.5)  # by cheaper transforms, which leave the trainer's own 40 %


def test_no_more_workers_when_they_keep_up_on_average() -> None:
    case = job(0.3, 8, numbers={"workers_busy": 2.0, "job_cores": 3.0}, settings={"cores": 64.0})
    found = first(case)
    assert advised(found) is None
    assert "More workers will not help: the 8 there are" in found.fixes[0].why


def test_workers_that_take_cores_from_the_arithmetic_are_not_waited_for() -> None:
    """Batches lie ready, but a worker on a core holds up the thread of the arithmetic that was there."""
    case = job(0.03, 4, numbers={"workers_busy": 0.28, "job_cores": 1.8}, settings={"cores": 2.0})
    found = first(replace(case, shares={CAUSE: 0.12, "cpu.model_compute": 0.88}))
    assert advised(found) is None
    assert "takes cores that the trainer's arithmetic needs" in found.fixes[0].why


def test_ranks_share_the_cores() -> None:
    case = job(0.8, 0, ranks=4, numbers={"job_cores": 4.0}, settings={"cores": 8.0})
    assert plan(case).useful == 2


def test_the_culprit_decides_not_the_one_that_waits() -> None:
    busy, idle = ({"workers_busy": Evidence("", value, "", "test")} for value in (1.0, 0.1))
    slow = Trainer(1, 101, {}, {"data": 0.5}, {}, (), 1, numbers=busy)
    fast = Trainer(0, 100, {}, {"data": 0.1, "backward": 0.9}, {}, (), 1, numbers=idle)
    numbers = {"job_cores": Evidence("", 2.0, "", "test")}
    case = Case({CAUSE: 0.5}, (fast, slow), {CAUSE: (1,)}, numbers, {"cores": 64.0})
    assert plan(case).needed == 2


@pytest.mark.parametrize(("running", "loader", "told"), [(0.4, "no", False), (0.9, "no", True), (0.4, "yes", True)])
def test_who_waits_for_processes_of_its_own_needs_no_loader(running: float, loader: str, told: bool) -> None:
    numbers = {"trainer_running": running, "job_cores": 1.0}
    settings: dict[str, str | float] = {"cores": 16.0, "loader": loader}
    case = job(0.6, 0, numbers=numbers, settings=settings, helpers=4)
    assert (advised(first(case)) is not None) is told


def test_what_environments_answer_is_kept_by_nobody() -> None:
    kept = "Do the part that never changes once"
    assert kept in [fix.title for fix in worded_fixes(first(job(0.6, 0)))]
    steps = job(0.6, 0, settings={"environments": "together"})
    assert kept not in [fix.title for fix in worded_fixes(first(steps))]


def test_unmeasured_workers_give_no_number() -> None:
    case = job(0.6, 2, settings={"cores": 16.0})
    assert plan_workers(case, CAUSE) is None
    assert advised(first(case)) is None


def test_unmeasured_cpu_use_counts_whoever_is_busy() -> None:
    """Without the job's CPU time, the trainer's own 0.4 s and its 2 workers are taken to use a core each."""
    case = job(0.6, 2, numbers={"workers_busy": 2.0}, settings={"cores": 4.0})
    assert plan(case).pace == pytest.approx(0.6)


def test_unknown_cores_limit_nothing() -> None:
    found = plan(job(0.6, 2, numbers={"workers_busy": 2.0}))
    assert found.useful == found.needed == 5


def test_pinning_is_advised_only_with_a_gpu_and_only_once() -> None:
    numbers = {"job_cores": 1.0}
    plain = first(job(0.8, 0, numbers=numbers, settings={"cores": 16.0}))
    assert "pin_memory" not in plain.fixes[0].change
    gpu = first(job(0.8, 0, numbers={**numbers, "gpus": 1.0}, settings={"cores": 16.0}))
    assert "pin_memory=True" in gpu.fixes[0].change
    pinned = first(job(0.8, 0, numbers={**numbers, "gpus": 1.0}, settings={"cores": 16.0, "pin_thread": "yes"}))
    assert "pin_memory" not in pinned.fixes[0].change


def test_slow_reads_want_workers_even_on_few_busy_cores() -> None:
    """Workers that wait for a disk use little CPU: cores limit their number, not the pace."""
    case = job(
        0.9, 1, cause="io.storage_read",
        numbers={"workers_busy": 1.0, "job_cores": 0.2, "device_busy": 0.3}, settings={"cores": 4.0},
    )  # fmt: skip
    found = first(case, "io.storage_read")
    assert advised(found) == "4"
    assert found.predicted_speedup == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ({"device_busy": 0.98}, "the device had requests under way for 98% of the time"),
        ({"device_busy": 0.03, "read_from_storage": 24.0}, "Something in between holds requests back"),
        ({"device_busy": 0.5, "reads_limit_used": 1.0}, "they share the limit of their control group"),
    ],
)
def test_storage_without_room_wants_no_more_readers(numbers: dict[str, float], why: str) -> None:
    """Three workers behind a limit of 24 MB/s were as fast as one (measured: 0.96 times), where 2.5x was told."""
    numbers = {"workers_busy": 1.0, "job_cores": 0.2, **numbers}
    found = first(job(0.9, 1, cause="io.storage_read", numbers=numbers, settings={"cores": 4.0}), "io.storage_read")
    assert advised(found) is None
    assert any(why in fix.why for fix in worded_fixes(found))


def test_workers_that_mostly_wait_can_share_a_core() -> None:
    """Measured: one worker that waits for its disk used 0.05 of a core; 2 cores serve several."""
    numbers = {"workers_busy": 1.0, "worker_cores": 0.05, "job_cores": 0.18, "device_busy": 0.1}
    case = job(0.88, 1, cause="io.storage_read", numbers=numbers, settings={"cores": 2.0})
    found = first(case, "io.storage_read")
    assert advised(found) == "8"
    assert found.predicted_speedup == pytest.approx(8.0)


@pytest.mark.parametrize(("target", "told"), [("pipe:[3]", False), ("socket:tcp", True), ("file:/data/a", True)])
def test_no_reader_is_added_to_a_pipe(target: str, told: bool) -> None:
    """Whoever writes into it sets the pace; three workers made a job on a slow pipe no faster."""
    case = job(
        0.9, 1, cause="io.storage_read", numbers={"workers_busy": 1.0, "job_cores": 0.2}, settings={"cores": 4.0}
    )
    found = first(replace(case, paths={"io.storage_read": ((target, 1.0),)}), "io.storage_read")
    assert (advised(found) is not None) is told


def test_memory_for_more_workers_is_asked_for_first() -> None:
    numbers = {"workers_busy": 2.0, "job_cores": 2.4, "worker_rss": 3000.0}
    for available, told in ((4000.0, True), (64_000.0, False)):
        case = job(0.6, 2, numbers={**numbers, "memory_available": available}, settings={"cores": 16.0})
        why = next(fix.why for fix in first(case).fixes if "loader worker" in fix.title)  # type: ignore[union-attr]
        assert ("Mind the memory: one worker takes 3 GB, and 4 GB are available" in why) is told


def test_a_small_shared_memory_is_told() -> None:
    for free, told in ((64.0, True), (16_000.0, False)):
        numbers = {"workers_busy": 2.0, "job_cores": 2.4, "shm_free": free}
        case = job(0.6, 2, numbers=numbers, settings={"cores": 16.0})
        fix = next(fix for fix in worded_fixes(first(case)) if "loader worker" in fix.title)
        assert ("--shm-size" in fix.change) is told
        assert ("/dev/shm, which has 64 MB free" in fix.why) is told


TABLE: dict[str, str | float] = {"dataset": "rows of a table"}


@pytest.mark.parametrize(
    ("below", "settings", "titles"),
    [
        ({"tokenizers": 0.6, "": 0.4}, {}, ["Do the part that never changes once", "Make a.py:3 f cheaper"]),
        ({"re": 0.6, "": 0.4}, {}, ["Make", "Do the part"]),  # of a text it may count words, for an order
        ({"PIL": 0.6}, {"gpus": 1.0}, ["Make", "Do the part", "Decode on the GPU", "Augment whole batches on the GPU"]),
        ({"librosa": 0.6}, {"gpus": 1.0}, ["Make", "Do the part"]),
        ({"json": 0.6, "": 0.4}, {}, ["Make", "Do the part"]),
        ({"": 1.0}, {"gpus": 1.0}, ["Make", "Do the part", "Augment whole batches on the GPU"]),
        ({"datasets": 0.6}, {"dataset": "arrow"}, ["Read the dataset's rows in order", "Make", "Do the part"]),
        ({"datasets": 0.01}, {"dataset": "arrow"}, ["Make", "Do the part"]),
        ({"pandas": 0.7, "": 0.3}, TABLE, ["Turn the table into tensors once", "Make", "Do the part"]),
        ({"pandas": 0.2, "": 0.8}, TABLE, ["Make", "Do the part"]),
        ({"pandas": 0.7, "": 0.3}, {}, ["Make", "Do the part"]),
    ],
)
def test_advice_speaks_of_what_the_input_is(
    below: dict[str, float], settings: dict[str, str | float], titles: list[str]
) -> None:
    case = replace(job(0.5, 0, settings=settings), below={CAUSE: below}, lines={CAUSE: (("a.py:3 f", 1.0),)})
    told = [fix.title for fix in worded_fixes(first(case)) if not fix.title.startswith("Use")]
    assert sorted(map(str, told)) == sorted(next(one for one in told if one.startswith(title)) for title in titles)
    assert len(told) == len(titles)
    text = "\n".join(fix.change for fix in worded_fixes(first(case)))
    assert ("whole arrays" in text) is (not {"tokenizers", "PIL", "librosa"} & below.keys())
    assert ("use_fast=True" in text) is ("tokenizers" in below)
    assert ("okens" in " ".join(fix.why for fix in worded_fixes(first(case)))) is ("tokenizers" in below)


def test_rows_of_a_table_promise_what_the_table_takes_and_come_before_workers() -> None:
    given = job(0.8, 0, numbers={"job_cores": 1.0}, settings={"cores": 2.0, **TABLE})
    [first_of_all, *_] = worded_fixes(first(replace(given, below={CAUSE: {"pandas": 0.9, "": 0.1}})))
    assert first_of_all.title == "Turn the table into tensors once"
    assert first_of_all.predicted_speedup == pytest.approx(1 / (1 - 0.8 * 0.9))
    assert first_of_all.speedup_range == pytest.approx((1 / (1 - 0.8 * 0.45), 5.0))


TOGETHER, AHEAD = "Ask all 4 helper processes before waiting for an answer", "Ask for the next batch before training"


@pytest.mark.parametrize(("at_once", "told"), [(None, True), (1.1, True), (3.2, False)])
def test_helpers_are_asked_together_where_they_work_one_at_a_time(at_once: float | None, told: bool) -> None:
    numbers = {} if at_once is None else {"helpers_at_once": at_once}
    for cause in ("cpu.data_transfer", *(["cpu.input_preprocessing"] if at_once else [])):
        case = job(0.8, 0, cause=cause, helpers=4, numbers=numbers, settings={"loader": "no", "cores": 2.0})
        speedups = paces(first(case, cause))
        assert (TOGETHER in speedups) is told
        # Two cores work at what one does now: half of the wait is left.
        assert not told or speedups[TOGETHER] == pytest.approx(1 / (1 - 0.8 * (1 - (at_once or 1.0) / 2)))


def test_only_what_does_not_follow_from_the_model_is_asked_for_ahead() -> None:
    for asked, told in (("for input", True), ("for the model", False), ("", False)):
        settings = {"loader": "no", "helpers": asked} if asked else {"loader": "no"}
        case = job(0.5, 0, helpers=1, numbers={"helpers_at_once": 1.0}, settings=settings)
        speedups = paces(first(case))
        assert any(title.startswith(AHEAD) for title in speedups) is told
        assert ("Do the part that never changes once" in speedups) is (asked != "for the model")
        assert not any("helper processes" in title for title in speedups)


def test_who_waits_for_helpers_and_was_seen_in_no_loader_is_not_given_workers() -> None:
    numbers = {"helpers_at_once": 1.0, "trainer_running": 0.2, "job_cores": 1.0}
    case = job(0.8, 0, helpers=4, numbers=numbers, settings={"cores": 8.0})
    assert plan_workers(case, CAUSE) is None
    assert TOGETHER in paces(first(case))
    assert plan_workers(replace(case, settings={"cores": 8.0, "loader": "yes"}), CAUSE) is not None


@pytest.mark.parametrize(("asleep", "told"), [(0.8, True), (0.3, False)])
def test_who_sleeps_prepares_nothing(asleep: float, told: bool) -> None:
    case = job(0.5, 0, numbers={"input_asleep": asleep, "job_cores": 0.6}, settings={"cores": 8.0, "loader": "yes"})
    found = first(replace(case, lines={CAUSE: (("train.py:7 ask", 0.9),)}))
    told_of = paces(found)
    assert ("Do not sleep at train.py:7 ask" in told_of) == told
    assert ("Make train.py:7 ask cheaper" in told_of) != told
    assert any("loader worker" in title for title in told_of)  # which sleep at the same time
    if told:
        assert told_of["Do not sleep at train.py:7 ask"] == pytest.approx(1 / (1 - 0.8 * 0.5))
        assert "Sleeping while the input is prepared" in found.summary


def test_helpers_are_no_loader_workers() -> None:
    case = job(0.5, 0, cause="cpu.data_transfer", helpers=4, settings={"loader": "yes"})
    assert [fix.title for fix in worded_fixes(first(case, "cpu.data_transfer"))] == [
        "Return few large tensors per batch"
    ]


@pytest.mark.parametrize(("by_file", "order"), [(None, [False]), (0.2, [False, True]), (0.9, [True, False])])
def test_tensors_are_shared_by_name_where_their_files_are_what_is_asked_for(
    by_file: float | None, order: list[bool]
) -> None:
    numbers = {} if by_file is None else {"taken_by_file": by_file}
    found = first(job(0.3, 2, cause="cpu.data_transfer", numbers=numbers), "cpu.data_transfer")
    by_name, fewer = "Let workers share tensors by name", "Return few large tensors per batch"
    assert [fix.title == by_name for fix in worded_fixes(found) if fix.title in (by_name, fewer)] == order
    if by_file is not None:
        assert paces(found)[by_name] == pytest.approx(1 / (1 - 0.3 * 0.5 * by_file))


@pytest.mark.parametrize(("busy", "place"), [(0.1, 0), (0.38, -1)])
def test_workers_with_less_to_do_than_their_batches_cost_to_be_sent_are_done_without_first(
    busy: float, place: int
) -> None:
    numbers = {"workers_busy": busy, "worker_busy": busy / 4}
    case = job(0.4, 4, cause="cpu.data_transfer", numbers=numbers, settings={"workers": 4.0, "loader": "yes"})
    titles = [fix.title for fix in worded_fixes(first(case, "cpu.data_transfer"))]
    assert titles[place] == "Try without workers"
    assert titles.count(titles[place]) == 1


@pytest.mark.parametrize(("neighbours", "sampling", "freed"), [(0.0, 0.0, 0.3), (1.2, 0.0, 0.5), (1.2, 0.2, 0.4)])
def test_doing_without_workers_saves_the_queueing_of_the_hand_over_and_no_drawing_of_indices(
    neighbours: float, sampling: float, freed: float
) -> None:
    numbers = {"workers_busy": 0.1, "worker_busy": 0.05, "neighbour_cores": neighbours, "job_cores": 0.8}
    case = job(
        0.7, 2, cause="cpu.data_transfer", numbers=numbers, trainer={"own_sampling": sampling},
        settings={"workers": 2.0, "loader": "yes", "cores": 2.0},
    )  # fmt: skip
    case = replace(case, shares={"cpu.data_transfer": 0.3, "cpu.contention": 0.4, "cpu.model_compute": 0.3})
    assert paces(first(case, "cpu.data_transfer"))["Try without workers"] == pytest.approx(1 / (1 - freed))


@pytest.mark.parametrize(("drawn", "speedup"), [(0.0, 2.0), (0.6, 1.25), (0.95, None)])
def test_what_follows_a_random_draw_cannot_be_kept(drawn: float, speedup: float | None) -> None:
    found = first(job(0.5, 0, numbers={"drawn_before": drawn}))
    assert paces(found).get("Do the part that never changes once") == (speedup and pytest.approx(speedup))
    said = [fix.why for fix in worded_fixes(found) if "random draw" in fix.why]
    assert len(said) == (drawn == 0.6)


def test_a_fix_promises_no_more_than_its_finding() -> None:
    """Workers would hide both causes, but each finding speaks for its own share."""
    given = job(0.8, 0, numbers={"job_cores": 1.0}, settings={"cores": 16.0})
    both = replace(given, shares={CAUSE: 0.5, "io.storage_read": 0.3, "cpu.model_compute": 0.2})
    found = first(both)
    assert found.predicted_speedup == pytest.approx(2.0)
    assert paces(found)["Use 4 loader workers"] == pytest.approx(2.0)


def test_a_loader_without_workers_is_told_from_one_with_idle_workers() -> None:
    """Two loaders: the one that validates has no workers, and the trainer prepares its batches itself."""
    numbers = {"workers_busy": 0.04, "job_cores": 1.0}
    found = first(job(0.42, 2, numbers=numbers, trainer={"own_fetching": 0.4}, settings={"cores": 8.0}))
    assert advised(found) == "1"
    assert "Now it has no worker in this loader; the 2 there are serve another" in found.fixes[0].why
    served = first(job(0.42, 2, numbers=numbers, trainer={"own_fetching": 0.05}, settings={"cores": 8.0}))
    assert advised(served) is None


@pytest.mark.parametrize(
    ("workers", "data", "in_loop", "busy", "told"),
    [
        (0, 0.0, 0.4, None, "1 loader worker"),
        (0, 0.0, 0.75, None, "3 loader workers"),
        (4, 0.02, 0.4, 0.3, "4 loader workers"),
        (4, 0.3, 0.1, 3.9, ""),  # more workers are what helps
        (0, 0.4, 0.05, None, ""),
    ],
)
def test_what_the_loop_prepares_itself_is_given_to_workers(
    workers: int, data: float, in_loop: float, busy: float | None, told: str
) -> None:
    """Tokens or augmentations between the loader and the model's call: no worker that there is can take them over."""
    numbers = {"job_cores": 1.0, **({} if busy is None else {"workers_busy": busy})}
    own = {"own_in_loop": in_loop, "own_fetching": in_loop + (0.0 if workers else data)}
    case = job(data, workers, numbers=numbers, trainer=own, settings={"cores": 16.0})
    found = first(replace(case, shares={CAUSE: data + in_loop, "cpu.model_compute": 1 - data - in_loop}))
    titles = [fix.title for fix in worded_fixes(found)]
    assert (f"Prepare batches in {told} instead of the loop" in titles) is bool(told)
    assert any(title.startswith("Use ") for title in titles) is not bool(told)
    if told:
        lost = LOST_BESIDE * min(1 - data - in_loop, in_loop / int(told[0])) * (not workers)
        assert found.predicted_speedup == pytest.approx(1 / (1 - in_loop + lost), rel=0.15)


@pytest.mark.parametrize("seen", [{"environments": "together"}, {"made_of_state": "/job/train.py:40 main"}])
def test_what_follows_from_steps_before_is_prepared_by_nobody_ahead(seen: dict[str, str]) -> None:
    settings: dict[str, str | float] = {"cores": 16.0, **seen}
    case = job(0.0, 0, numbers={"job_cores": 1.0}, trainer={"own_in_loop": 0.4}, settings=settings)
    found = first(replace(case, shares={CAUSE: 0.4, "cpu.model_compute": 0.6}))
    assert not any("loader worker" in fix.title for fix in worded_fixes(found))


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        ({"pool_at": "/job/train.py:40 main"}, "Make the pool once, before the loop"),
        ({}, "Keep the workers between epochs"),
    ],
)
def test_what_is_started_again_is_kept(settings: dict[str, str | float], title: str) -> None:
    case = job(0.1, 0, cause="cpu.worker_startup", numbers={"job_cores": 1.0}, settings=settings)
    found = first(replace(case, shares={"cpu.worker_startup": 0.5, "cpu.model_compute": 0.5}), "cpu.worker_startup")
    assert worded_fixes(found)[0].title == title


def test_what_all_steps_of_a_pass_share_is_given_to_no_worker() -> None:
    """A sort before each epoch: workers make batches, and it is none."""
    own = {"own_per_pass": 0.4, "own_fetching": 0.02}
    settings: dict[str, str | float] = {"cores": 16.0, "per_pass_at": "/job/train.py:40 main"}
    case = job(0.02, 0, numbers={"job_cores": 1.0}, trainer=own, settings=settings)
    case = replace(case, shares={CAUSE: 0.42, "cpu.model_compute": 0.58})
    found = first(case)
    fixes = worded_fixes(found)
    assert fixes[0].title == "Prepare less often what all steps of a pass share"
    assert "/job/train.py:40 main" in fixes[0].why
    assert found.predicted_speedup == pytest.approx(1 / (1 - 0.75 * 0.4), rel=0.01)
    assert not any("loader worker" in fix.title for fix in fixes)
    episodes = first(replace(case, settings={**settings, "environments": "one by one"}))
    assert not any(fix.title.startswith("Prepare less often") for fix in worded_fixes(episodes))


def test_cores_are_said_to_be_short_only_where_they_are() -> None:
    """Otherwise a worker would not help since so little of the input comes from a loader."""
    for cores, said in ((1.0, True), (8.0, False)):
        case = job(0.03, 0, numbers={"job_cores": 1.0}, settings={"cores": cores})
        found = first(replace(case, shares={CAUSE: 0.2, "cpu.model_compute": 0.8}))
        assert (f"no core of the {cores:g}" in " ".join(fix.why for fix in worded_fixes(found))) is said


@pytest.mark.parametrize(("cause", "certain"), [("io.network_read", False), ("io.storage_read", True)])
def test_more_readers_of_a_network_are_not_certain_to_help(cause: str, certain: bool) -> None:
    """Where its bytes are what is short, they only share them."""
    case = job(0.5, 2, cause=cause, numbers={"workers_busy": 2.0, "job_cores": 1.0}, settings={"cores": 16.0})
    fix = next(fix for fix in worded_fixes(first(case, cause)) if fix.title == "Use 4 loader workers")
    assert fix.speedup_range is not None
    assert (fix.speedup_range[0] > 1.5) is certain
    assert fix.predicted_speedup == pytest.approx(2.0)


def test_a_slow_sampler_is_not_helped_by_workers() -> None:
    numbers = {"workers_busy": 0.04}
    found = first(job(0.42, 2, numbers=numbers, trainer={"own_sampling": 0.4}, settings={"cores": 8.0}))
    assert advised(found) is None
    assert "indices" in found.fixes[0].title
    numbers = {"workers_busy": 0.9}
    fast = first(job(0.42, 1, numbers=numbers, trainer={"own_sampling": 0.1}, settings={"cores": 8.0}))
    assert "indices" not in fast.fixes[0].title


@pytest.mark.parametrize(("first_batches", "title"), [(1.0, "Keep the loader's iterator"), (0.1, "Draw many batches")])
def test_iterators_that_draw_an_epoch_for_a_batch_are_kept(first_batches: float, title: str) -> None:
    numbers = {"first_batches": first_batches}
    found = first(job(0.5, 0, numbers=numbers, trainer={"own_sampling": 0.45}, settings={"cores": 8.0}))
    assert found.fixes[0].title.startswith(title)
    assert found.fixes[0].predicted_speedup == pytest.approx(2.0)


def test_busy_workers_that_keep_up_take_the_trainers_cores() -> None:
    found = first(job(0.1, 1, numbers={"workers_busy": 0.82, "job_cores": 1.9}, settings={"cores": 2.0}))
    assert "preparing them takes cores that the trainer's arithmetic needs" in found.fixes[0].why


def test_one_busy_worker_wants_its_work_spread() -> None:
    """Two workers, of which one has the slow shard: a third would not help, half of the slow shard would."""
    numbers, trainer = {"workers_busy": 1.05, "job_cores": 1.5}, {"busiest_worker": 0.97, "next_busiest_worker": 0.08}
    found = first(job(0.6, 2, numbers=numbers, trainer=trainer, settings={"cores": 8.0}))
    assert advised(found) is None
    spread = next(fix for fix in worded_fixes(found) if fix.title == "Give each loader worker as much to do")
    assert "97% of the time, the next one 8%" in spread.why
    assert spread.predicted_speedup == pytest.approx(1 / (1.05 / 2), rel=0.01)
    assert "can prepare batches as fast" not in " ".join(fix.why for fix in worded_fixes(found))


@pytest.mark.parametrize(("busiest", "following"), [(0.97, 0.9), (0.5, 0.1)])
def test_workers_that_are_alike_or_idle_are_not_called_uneven(busiest: float, following: float) -> None:
    numbers = {"workers_busy": busiest + following, "job_cores": 1.5}
    trainer = {"busiest_worker": busiest, "next_busiest_worker": following}
    found = first(job(0.6, 2, numbers=numbers, trainer=trainer, settings={"cores": 8.0}))
    assert all(fix.title != "Give each loader worker as much to do" for fix in worded_fixes(found))


@pytest.mark.parametrize(("call", "part", "advised"), [
    ("zipfile ZipFile", 0.8, True), ("zipfile ZipFile", 0.05, False), ("zipfile ZipFile.read", 0.8, False),
])  # fmt: skip
def test_what_opens_a_file_of_many_samples_does_so_once(call: str, part: float, advised: bool) -> None:
    case = replace(job(0.5, 0), library_calls={CAUSE: ((call, part),)})
    assert ("Open the file of many samples once" in [fix.title for fix in worded_fixes(first(case))]) == advised


@pytest.mark.parametrize("opener", ["tarfile TarFile.open", "PIL open"])
def test_what_is_read_at_the_first_look_up_goes_with_opening(opener: str) -> None:
    """An archive that is opened once may be looked up in for each sample."""
    case = replace(job(0.5, 0), library_calls={CAUSE: (("tarfile TarFile.extractfile", 0.7), (opener, 0.06))})
    told = [fix.why for fix in worded_fixes(first(case)) if fix.title == "Open the file of many samples once"]
    assert [why.partition(" takes ")[0] for why in told] == ["tarfile TarFile.extractfile"] * opener.startswith("tar")


@pytest.mark.parametrize(("other", "decoding"), [("tarfile", False), ("torch", True)])
def test_decoding_is_not_what_to_make_cheaper_beside_a_library_that_takes_most(other: str, decoding: bool) -> None:
    case = replace(job(0.5, 0), below={CAUSE: {"PIL": 0.2, other: 0.7}})
    assert ("image.draft" in " ".join(fix.change for fix in worded_fixes(first(case)))) == decoding


@pytest.mark.parametrize(("part", "told"), [(0.9, True), (0.2, False)])
def test_a_program_for_each_sample_is_replaced_by_a_library(part: float, told: bool) -> None:
    case = replace(job(0.5, 0), library_calls={CAUSE: (("subprocess run", part), ("json loads", 0.05))})
    assert ("Starting a program" in " ".join(fix.change for fix in worded_fixes(first(case)))) == told


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stream_needs_shards_for_its_workers(streamed: bool) -> None:
    settings: dict[str, str | float] = {"cores": 16.0, **({"streamed": "yes"} if streamed else {})}
    found = first(job(0.6, 2, numbers={"workers_busy": 2.0, "job_cores": 2.4}, settings=settings))
    fix = next(fix for fix in found.fixes if fix.title == "Use 5 loader workers")
    assert fix.speedup_range is not None
    assert (fix.speedup_range[0] == 1.0) == streamed
    assert ("stream.num_shards has to be 5 or more" in fix.change) == streamed


def test_advice_knows_why_a_library_s_call_is_slow() -> None:
    case = replace(job(0.6, 0), library_calls={CAUSE: (("random Random.sample", 0.9),)})
    [cheaper] = [fix for fix in worded_fixes(first(case)) if "cheaper" in fix.title]
    assert "a deque goes through its items" in cheaper.change
    other = replace(case, library_calls={CAUSE: (("numpy stack", 0.9),)})
    assert not any("deque" in fix.change for fix in worded_fixes(first(other)))


@pytest.mark.parametrize(("loader", "workers_told"), [("no", False), ("yes", True)])
def test_a_loop_that_sleeps_needs_no_workers(loader: str, *, workers_told: bool) -> None:
    numbers = {"input_asleep": 0.9, "job_cores": 0.5}
    fixes = worded_fixes(first(job(0.6, 0, numbers=numbers, settings={"loader": loader, "cores": 4.0})))
    assert fixes[0 if loader == "no" else -1].title.startswith("Do not sleep")
    assert any("worker" in fix.title for fix in fixes) is workers_told


@pytest.mark.parametrize(("loader", "title"), [("no", "is copied"), ("yes", "own resource")])
def test_threads_that_queue_for_a_lock_have_no_files_of_a_loader(loader: str, title: str) -> None:
    case = job(0.4, 0, cause="cpu.lock_contention", settings={"loader": loader})
    fixes = worded_fixes(first(case, "cpu.lock_contention"))
    assert title in fixes[0].title


@pytest.mark.parametrize(
    ("rate", "size", "told"), [(360_000.0, 1.4, True), (40_000.0, 23.0, False), (360_000.0, 10_240.0, False)]
)
def test_bytes_that_are_read_one_by_one_are_to_be_buffered(rate: float, size: float, told: bool) -> None:
    numbers = {"read_calls": rate, "bytes_per_read": size}
    found = finding("cpu.input_preprocessing", share=0.3, numbers=numbers, lines=("t.py:65 Stream.lines",))
    title = "Read many bytes at a time at t.py:65 Stream.lines"
    assert (title in titles(found)) is told
    fix = next((fix for fix in worded_fixes(found) if fix.title == title), None)
    assert fix is None or fix.predicted_speedup == pytest.approx(1 / (1 - 0.144), abs=0.001)
