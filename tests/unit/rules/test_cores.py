"""Advice about cores fits the job: its threads, its neighbours, its mask, its quota."""

import pytest

from perfdoctor.metrics.neighbours import BusyHelper, Neighbour
from perfdoctor.reports.wording import worded_fixes
from tests.builders.cases import changes, finding, titles


def test_a_narrow_mask_is_widened_and_its_gain_counts_the_hosts_cores() -> None:
    settings: dict[str, str | float] = {"cores": 1.0, "affinity_cores": 1.0, "host_cores": 4.0}
    numbers = {"job_cores": 1.0, "host_cores_busy": 1.1, "runnable_threads": 2.0}
    found = finding("cpu.contention", numbers=numbers, settings=settings, workers=2)
    assert titles(found)[0] == "Let the job use more cores"
    assert found.predicted_speedup == pytest.approx(2.0)
    full = finding("cpu.contention", numbers={**numbers, "host_cores_busy": 3.9}, settings=settings, workers=2)
    assert "Let the job use more cores" not in titles(full)
    assert full.predicted_speedup == pytest.approx(1.0)


@pytest.mark.parametrize("place", [None, "train.py:22 pin"])
def test_a_job_that_confines_itself_is_told_where(place: str | None) -> None:
    settings: dict[str, str | float] = {"cores": 1.0, "affinity_cores": 1.0, "host_cores": 4.0}
    settings |= {"pinned_at": place} if place else {}
    numbers = {"job_cores": 1.0, "host_cores_busy": 1.1, "runnable_threads": 2.0}
    fix = worded_fixes(finding("cpu.contention", numbers=numbers, settings=settings, workers=2))[0]
    assert fix.change.startswith("os.sched_setaffinity(0, range(4))" if place else "taskset")
    assert (f"at {place}: leave that out" in fix.why) is (place is not None)


def test_own_threads_are_fitted_to_the_cores() -> None:
    found = finding(
        "cpu.contention", numbers={"runnable_threads": 40.0, "job_cores": 8.0, "neighbour_cores": 0.0},
        settings={"cores": 8.0}, workers=3,
    )  # fmt: skip
    assert titles(found)[0] == "Use 2 compute threads per process"
    assert "OMP_NUM_THREADS=2" in changes(found)
    assert "the job has 40 threads at a time for 8 cores" in found.summary


def test_threads_that_fit_already_are_left_alone() -> None:
    settings: dict[str, str | float] = {"cores": 8.0, "env.OMP_NUM_THREADS": "2"}
    fitting = finding("cpu.contention", numbers={"runnable_threads": 10.0}, settings=settings, workers=3)
    assert not any("compute thread" in title for title in titles(fitting))
    overruled = finding("cpu.contention", numbers={"runnable_threads": 40.0}, settings=settings, workers=3)
    assert titles(overruled)[0] == "Use 2 compute threads per process"
    assert "OMP_NUM_THREADS is 2, but code sets more" in overruled.fixes[0].why
    assert overruled.fixes[0].change.startswith("torch.set_num_threads(2)")


def test_threads_that_the_script_sets_are_not_changed_by_a_variable() -> None:
    numbers = {"runnable_threads": 8.0}
    for of_script, change in (({"threads_set": "yes"}, "torch.set_num_threads(1)"), ({}, "OMP_NUM_THREADS=1")):
        settings: dict[str, str | float] = {"cores": 2.0, "affinity_cores": 4.0, **of_script}
        found = finding("cpu.contention", numbers=numbers, settings=settings, ranks=2)
        fewer = next(fix for fix in found.fixes if fix.title == "Use 1 compute thread per process")
        assert (fewer.change or "").startswith(change)


def test_what_crowded_threads_burn_in_the_arithmetic_is_in_the_range() -> None:
    """Beside the queues, as much of it as threads are beyond the cores."""
    settings: dict[str, str | float] = {"cores": 2.0, "affinity_cores": 2.0}
    crowded = finding("cpu.contention", numbers={"runnable_threads": 8.0}, settings=settings).fixes[0]
    assert crowded.predicted_speedup == pytest.approx(2.0)
    assert crowded.speedup_range == pytest.approx((1 / 0.75, 1 / (1 - 0.5 - 0.5 * 0.75)))


@pytest.mark.parametrize(
    ("variable", "runnable", "by_code"),
    [("", 8.0, True), ("8", 8.0, False), ("4", 8.0, True), ("auto", 8.0, False)],
)
def test_a_variable_is_not_advised_where_code_sets_more_than_it_gives(
    variable: str, runnable: float, by_code: bool
) -> None:
    """More threads than cores, and more than the variable gives or leaves to each process: it would change nothing."""
    settings: dict[str, str | float] = {"cores": 2.0, "affinity_cores": 2.0}
    settings |= {"env.OMP_NUM_THREADS": variable} if variable else {}
    advised = finding("cpu.contention", numbers={"runnable_threads": runnable}, settings=settings).fixes[0]
    assert advised.change.startswith("torch.set_num_threads(2)" if by_code else "OMP_NUM_THREADS=2")
    assert ("code sets more" in advised.why) is by_code


@pytest.mark.parametrize(
    ("cores", "beside", "workers", "fitting"),
    [(8.0, 0.3, 8, 8), (8.0, 4.2, 8, 4), (2.0, 0.3, 4, 2), (2.0, 1.2, 4, 1), (8.0, 0.0, 40, 8)],
)
def test_threads_fit_on_the_cores_that_others_leave_and_not_on_a_part_for_each_process(
    cores: float, beside: float, workers: int, fitting: int
) -> None:
    """Workers and helpers that mostly sleep need no core of their own."""
    numbers = {"runnable_threads": 3 * cores, "job_cores": cores, "trainer_cores": cores - beside, "worker_cores": 0.1}
    found = finding("cpu.contention", numbers=numbers, settings={"cores": cores}, workers=workers)
    assert titles(found)[0].startswith(f"Use {fitting} compute thread")


def test_a_pool_that_the_script_makes_larger_than_the_cores_is_advised_to_fit() -> None:
    numbers = {"runnable_threads": 11.8, "job_cores": 8.0, "trainer_cores": 8.0}
    settings: dict[str, str | float] = {"cores": 8.0, "affinity_cores": 8.0, "threads_set": "12"}
    assert (
        titles(finding("cpu.contention", numbers=numbers, settings=settings))[0] == "Use 8 compute threads per process"
    )


def test_a_pool_that_fits_already_is_not_advised_anew() -> None:
    """Crowded for moments: the default is one thread for each core, and workers leave it these."""
    numbers = {"runnable_threads": 2.6, "job_cores": 1.9, "trainer_cores": 1.7}
    found = finding("cpu.contention", numbers=numbers, settings={"cores": 2.0, "affinity_cores": 2.0})
    assert not any("compute thread" in title for title in titles(found))


@pytest.mark.parametrize(("helpers", "cores_used", "advised"), [(4, 0.62, False), (4, 0.9, True), (0, 0.62, True)])
def test_processes_of_one_thread_each_are_not_told_to_use_one(helpers: int, cores_used: float, advised: bool) -> None:
    """A trainer without a pool beside its environments: the job's processes outnumber the cores, not their threads."""
    found = finding(
        "cpu.contention", numbers={"runnable_threads": 2.6, "trainer_running": 0.6, "trainer_cores": cores_used},
        settings={"cores": 2.0}, helpers=helpers,
    )  # fmt: skip
    assert any("compute thread" in title for title in titles(found)) is advised
    if advised:
        assert f"{1 + helpers} process" in found.fixes[0].why


@pytest.mark.parametrize(
    ("busy", "preparing", "runnable", "told"),
    [(0.98, 0.0, 3.0, True), (0.1, 0.0, 3.0, False), (0.98, 0.1, 3.0, False), (0.98, 0.0, 2.0, False)],
)
def test_a_process_of_the_job_s_own_is_told_to_take_fewer_cores(
    busy: float, preparing: float, runnable: float, told: bool
) -> None:
    helper = BusyHelper(77, "python train.py", busy, "train.py:57 evaluate")
    found = finding(
        "cpu.contention", share=0.6, numbers={"runnable_threads": runnable, "job_cores": 1.9},
        settings={"cores": 2.0}, busy_helper=helper, beside={"cpu.input_preprocessing": preparing},
    )  # fmt: skip
    assert (titles(found)[0] == "Let process 77 of the job take fewer cores") is told
    if told:
        assert "train.py:57 evaluate" in found.fixes[0].why
        assert found.predicted_speedup == pytest.approx(2 / (1.9 - 0.98), abs=0.01)  # what is left needs its cores


def test_neighbours_are_blamed_when_the_job_itself_fits() -> None:
    found = finding(
        "cpu.contention", numbers={"runnable_threads": 2.0, "job_cores": 1.0, "neighbour_cores": 2.0},
        settings={"cores": 2.0, "host_cores": 2.0},
    )  # fmt: skip
    assert titles(found)[0] == "Keep other processes off these cores"
    assert "processes outside the job keep 2 cores busy" in found.summary
    assert not any("compute thread" in title for title in titles(found))


def test_neighbours_are_named() -> None:
    neighbours = (Neighbour(123, "stress", 1.5), Neighbour(456, "kswapd0", 0.41))
    found = finding("cpu.contention", numbers={"job_cores": 1.0, "neighbour_cores": 2.0}, neighbours=neighbours)
    assert "processes outside the job keep 2 cores busy (stress (pid 123) 1.5, kswapd0 (pid 456) 0.41)" in found.summary
    assert "renice +19 -p 123 456" in changes(found)
    unseen = finding("cpu.contention", numbers={"job_cores": 1.0, "neighbour_cores": 2.0})
    assert "--sort=-pcpu" in changes(unseen)


@pytest.mark.parametrize(
    ("share", "neighbours", "threads", "times"),
    [(0.95, 1.4, 2.0, "6 times"), (0.95, 1.4, 1.0, ""), (0.5, 1.0, 2.0, ""), (0.9, 0.1, 2.0, "")],
)
def test_a_pool_that_stands_still_beside_neighbours_is_made_smaller(
    share: float, neighbours: float, threads: float, times: str
) -> None:
    numbers = {"runnable_threads": threads, "job_cores": 0.6, "neighbour_cores": neighbours}
    found = finding("cpu.contention", numbers=numbers, settings={"cores": 2.0, "host_cores": 2.0}, share=share)
    smaller = [fix for fix in found.fixes if fix.title == "While they run, use 1 compute thread"]
    assert [times in fix.why for fix in smaller] == ([True] if times else [])


def test_a_narrow_affinity_is_named_only_if_the_host_has_idle_cores() -> None:
    settings: dict[str, str | float] = {"cores": 1.0, "affinity_cores": 1.0, "host_cores": 8.0}
    idle = finding("cpu.contention", numbers={"host_cores_busy": 1.0}, settings=settings)
    assert titles(idle)[0] == "Let the job use more cores"
    assert "taskset" in changes(idle)
    for numbers in ({"host_cores_busy": 7.9}, {}):
        assert "Let the job use more cores" not in titles(finding("cpu.contention", numbers=numbers, settings=settings))


@pytest.mark.parametrize(
    ("variable", "value", "binds"),
    [("OMP_PROC_BIND", "close", True), ("OMP_PROC_BIND", "false", False), ("KMP_AFFINITY", "verbose,none", False)],
)
def test_threads_that_openmp_binds_to_the_same_core_are_unbound(variable: str, value: str, binds: bool) -> None:
    settings: dict[str, str | float] = {"cores": 1.0, "affinity_cores": 1.0, "host_cores": 8.0}
    settings[f"env.{variable}"] = value
    found = finding("cpu.contention", numbers={"host_cores_busy": 1.0}, settings=settings)
    assert (f"unset {variable}" in changes(found), "taskset -a" in changes(found)) == (binds, not binds)


def test_workers_beyond_the_cores_are_too_many() -> None:
    found = finding("cpu.contention", settings={"cores": 4.0}, workers=16)
    assert "Use 3 loader workers per trainer" in titles(found)
    assert not any(
        "loader worker" in title for title in titles(finding("cpu.contention", settings={"cores": 32.0}, workers=16))
    )


@pytest.mark.parametrize(("waited", "told"), [(0.1, True), (0.4, False)])
def test_workers_that_are_waited_for_are_not_too_many(waited: float, told: bool) -> None:
    """One worker in place of two that could not keep up made a job 0.77 times as fast, where 1.3 had been told."""
    others = {"cpu.input_preprocessing": waited}
    found = finding("cpu.contention", share=0.3, beside=others, settings={"cores": 2.0}, workers=2)
    assert ("Use 1 loader worker per trainer" in titles(found)) is told


def test_a_free_core_is_worth_no_more_than_the_cores() -> None:
    """A job that keeps 1 of 2 cores busy cannot run more than twice as fast on both."""
    numbers = {"job_cores": 1.8, "runnable_threads": 14.0}
    crowded = finding("cpu.contention", numbers=numbers, settings={"cores": 2.0}, workers=16)
    assert crowded.predicted_speedup == pytest.approx(2 / 1.8, abs=0.01)
    pool = {"trainer_running": 0.5, "trainer_cores": 1.7}
    burnt_at_barriers = finding("cpu.contention", numbers={**numbers, **pool}, settings={"cores": 2.0}, workers=16)
    assert burnt_at_barriers.predicted_speedup == pytest.approx(2.0)
    pool = {"trainer_running": 0.1, "trainer_cores": 1.0}
    numbers = {"job_cores": 1.0, "runnable_threads": 2.0, "neighbour_cores": 1.0, **pool}
    beside = finding("cpu.contention", numbers=numbers, settings={"cores": 2.0}, share=0.86)
    assert beside.predicted_speedup == pytest.approx(7.1, abs=0.1)  # measured: 7.5
    light = finding("cpu.contention", numbers={"job_cores": 0.5, "neighbour_cores": 2.0}, settings={"cores": 2.0})
    assert light.predicted_speedup == pytest.approx(2.0)


def test_one_thread_under_a_quota_is_not_told_to_use_one_thread() -> None:
    settings: dict[str, str | float] = {"quota_cores": 0.65, "cores": 0.65, "affinity_cores": 2.0}
    assert titles(finding("cpu.throttled", numbers={"runnable_threads": 1.0}, settings=settings)) == [
        "Raise the CPU quota"
    ]
    several = finding("cpu.throttled", numbers={"runnable_threads": 2.0}, settings=settings)
    assert "If the quota must stay, use 1 compute thread" in titles(several)


def test_idle_workers_are_not_taken_away_for_a_core() -> None:
    idle = finding("cpu.contention", numbers={"worker_cores": 0.04}, settings={"cores": 2.0}, workers=2)
    assert not any("loader worker" in title for title in titles(idle))
    busy = finding("cpu.contention", numbers={"worker_cores": 1.4}, settings={"cores": 2.0}, workers=2)
    assert "Use 1 loader worker per trainer" in titles(busy)


def test_a_job_that_fills_its_cores_need_not_look_for_others() -> None:
    full = finding("cpu.contention", numbers={"job_cores": 1.83}, settings={"cores": 2.0})
    assert titles(full) == ["Give the job more cores, or less to do on these"]
    light = finding("cpu.contention", numbers={"job_cores": 1.0}, settings={"cores": 2.0})
    assert titles(light) == ["Find out who else runs on these cores"]


def test_contention_tells_what_the_main_thread_waits_for_others() -> None:
    others = finding("cpu.contention", numbers={"trainer_run_delay": 0.3})
    assert "for 30% the main thread itself waits for a core, for the rest it waits for threads" in others.summary
    assert "itself" not in finding("cpu.contention", numbers={"trainer_run_delay": 0.48}).summary
    assert "itself" not in finding("cpu.contention").summary
