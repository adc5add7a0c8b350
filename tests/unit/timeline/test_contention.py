"""Whose work a queue for cores is charged to."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import Fact
from tests.builders import jobs

TRAINER, WORKER = 1, 2
TORCH = "/v/lib/python3.11/site-packages/torch"


def why_delayed(cores: float, idle: float, reachable: float = 2.0, together: float | None = None) -> dict[str, float]:
    """A trainer and a worker that get half of a core each of those that they may use, and the job ``together``."""
    half = {"run": cores / 2, "delay": cores / 2}
    job = jobs.timeline(
        [
            *jobs.process(TRAINER, parent=0),
            *jobs.thread(TRAINER, TRAINER, **half),
            *jobs.process(WORKER, parent=TRAINER),
            *jobs.thread(WORKER, WORKER, name="pt_data_worker", **half),
            *jobs.readings(f"pid:{TRAINER}", "allowed_cores", cores, cores, every_s=jobs.SECONDS),
            *jobs.readings("job", "usable_cores", together or cores),
            *jobs.readings("host", "idle_seconds_total", 0.0, idle * jobs.SECONDS, every_s=jobs.SECONDS),
            *jobs.readings("host", "neighbours_seconds_total", 0.0, 0.0, every_s=jobs.SECONDS),
        ],
        reachable_cores=str(reachable),
    )
    return job.cpu.delay_parts(TRAINER, jobs.at(5))


def test_workers_on_all_cores_of_the_host_take_them_for_the_input() -> None:
    why = why_delayed(cores=1.0, idle=0.0)
    assert why["cpu.input_preprocessing"] == pytest.approx(1, abs=0.01)
    assert why["cpu.contention"] == 0


def test_workers_on_a_narrow_mask_queue_because_of_it() -> None:
    why = why_delayed(cores=1.0, idle=0.9)
    assert why["cpu.contention"] == pytest.approx(1, abs=0.01)
    assert why["cpu.input_preprocessing"] == 0


def test_ranks_that_are_bound_to_cores_of_their_own_queue_for_their_masks() -> None:
    """The job may use both, and cores of the host are idle all the same."""
    why = why_delayed(cores=1.0, idle=14.0, reachable=16.0, together=2.0)
    assert why["cpu.input_preprocessing"] == 0


def test_a_container_that_confines_everybody_is_no_mask_of_the_jobs_own() -> None:
    assert why_delayed(cores=1.0, idle=0.9, reachable=1.0)["cpu.contention"] == 0


@pytest.mark.parametrize("own_cores", [0.1, 0.2, 0.25])
def test_what_perfdoctor_takes_is_nobodys_contention(own_cores: float) -> None:
    """A trainer beside perfdoctor, and beside a neighbour that takes little: together they fill two cores."""
    neighbour = 0.05
    job = jobs.timeline(
        [
            *jobs.process(TRAINER, parent=0),
            *jobs.thread(TRAINER, TRAINER, run=2.0 - own_cores - neighbour, delay=own_cores),
            *jobs.readings("job", "usable_cores", 2.0),
            *jobs.readings("host", "neighbours_seconds_total", 0.0, neighbour * jobs.SECONDS, every_s=jobs.SECONDS),
            *jobs.readings("perfdoctor", "cpu_seconds_total", 0.0, own_cores * jobs.SECONDS, every_s=jobs.SECONDS),
        ],
        reachable_cores="2",
    )
    why = job.cpu.delay_parts(TRAINER, jobs.at(5))
    assert why["cpu.contention"] == pytest.approx(neighbour / (neighbour + own_cores), abs=0.01)


def test_what_a_loader_worker_starts_supplies_as_it_does() -> None:
    """A decoder behind a pipe, for instance."""
    job = jobs.timeline(
        [
            *jobs.process(TRAINER, parent=0),
            *jobs.thread(TRAINER, TRAINER, run=0.5, delay=0.5),
            *jobs.process(WORKER, parent=TRAINER),
            *jobs.thread(WORKER, WORKER, "S", name="pt_data_worker"),
            *jobs.process(3, parent=WORKER),
            *jobs.thread(3, 3, name="ffmpeg", run=0.5, delay=0.5),
            *jobs.readings("job", "usable_cores", 1.0),
            *jobs.readings("host", "neighbours_seconds_total", 0.0, 0.0, every_s=jobs.SECONDS),
        ],
        reachable_cores="1",
    )
    assert job.cpu.delay_parts(TRAINER, jobs.at(5))["cpu.input_preprocessing"] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("states", "takes", "cause"),
    [
        ("R", False, "cpu.contention"),
        ("RRS", True, "cpu.input_preprocessing"),
        ("RRR", True, "cpu.input_preprocessing"),  # what it takes was always there in time
    ],
)
def test_a_process_of_the_jobs_own_supplies_only_a_trainer_that_takes_something(
    states: str, takes: bool, cause: str
) -> None:
    """An evaluation beside the training takes a core from it, and prepares nothing."""
    backward = (Frame("/job/train.py", "main", 9), Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 623))
    asking = (
        Frame("/job/train.py", "main", 5),
        Frame("/usr/lib/python3.11/multiprocessing/connection.py", "recv", 250),
    )
    job = jobs.timeline(
        [
            *jobs.process(TRAINER, parent=0),
            *jobs.thread(TRAINER, TRAINER, states, call="read", target="pipe", run=0.5, delay=0.5),
            *jobs.stacks(TRAINER, *([backward, backward, asking] if takes else [backward])),
            *jobs.process(WORKER, parent=TRAINER),
            *jobs.thread(WORKER, WORKER, run=0.5, delay=0.5),
            *jobs.readings("job", "usable_cores", 1.0),
            *jobs.readings("host", "neighbours_seconds_total", 0.0, 0.0, every_s=jobs.SECONDS),
        ],
        reachable_cores="1",
    )
    why = job.cpu.delay_parts(TRAINER, jobs.at(5))
    assert why[cause] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("main", "helper", "in_pool"),
    [
        ("python", "python", True),
        ("python", "pt_nccl_watchdg", False),
        ("python", "TP_SHM_reactor", False),
        ("python", "NCCL Progress 0", False),
        # torch 2.4 renamed the main thread, from which those of the pool have their names.
        ("pt_main_thread", "pt_main_thread", True),
        ("pt_main_thread", "pt_autograd_0", False),
    ],
)
def test_threads_of_the_pool_are_called_as_the_main_thread_is(main: str, helper: str, in_pool: bool) -> None:
    threads = [*jobs.thread(TRAINER, TRAINER, name=main), *jobs.thread(TRAINER + 1, TRAINER, "RS", name=helper)]
    pool = jobs.timeline([*jobs.process(TRAINER), *threads]).kinds.pool(TRAINER)
    assert [thread.tid for thread in pool] == [TRAINER + 1] * in_pool


def mask(subject: str, cores: str) -> Fact:
    return Fact(jobs.at(0), "cpu", subject, "affinity", cores)


@pytest.mark.parametrize(("helper", "cores"), [("0", 1), ("1", 2)])
def test_threads_that_may_run_on_one_core_only_queue_for_that(helper: str, cores: int) -> None:
    """An idle thread that was started before the mask was narrowed makes no core of it."""
    job = jobs.timeline(
        [
            *jobs.process(TRAINER, parent=0),
            *jobs.thread(TRAINER, TRAINER, run=0.5, delay=0.5),
            *jobs.thread(5, TRAINER, run=0.5, delay=0.5),
            *jobs.thread(6, TRAINER, "S"),
            *(mask(f"pid:{TRAINER}", "0-1"), mask(f"tid:{TRAINER}", "0"), mask("tid:5", helper)),
            *jobs.readings(f"pid:{TRAINER}", "allowed_cores", 2.0),
            *jobs.readings("job", "usable_cores", 2.0),
            *jobs.readings("host", "idle_seconds_total", 0.0, jobs.SECONDS, every_s=jobs.SECONDS),
            *jobs.readings("host", "neighbours_seconds_total", 0.0, 0.0, every_s=jobs.SECONDS),
        ],
        reachable_cores="2",
    )
    assert job.cores == cores
    crowded = job.cpu.delay_parts(TRAINER, jobs.at(5))["cpu.contention"]
    assert crowded == pytest.approx(1.0 if cores == 1 else 0.0, abs=0.01)


@pytest.mark.parametrize(("second", "crowded"), [("0", True), ("1", False)])
def test_ranks_crowd_each_other_out_only_on_the_same_cores(second: str, crowded: bool) -> None:
    ranks = [(1, "0"), (2, second)]
    job = jobs.timeline(
        [
            *(row for rank, _ in ranks for row in jobs.process(rank, parent=0)),
            *(row for rank, _ in ranks for row in jobs.thread(rank, rank, run=0.5, delay=0.5)),
            *(mask(f"pid:{rank}", cores) for rank, cores in ranks),
            *jobs.readings("job", "usable_cores", 2.0),
            *jobs.readings("host", "neighbours_seconds_total", 0.0, 0.0, every_s=jobs.SECONDS),
        ],
        reachable_cores="2",
    )
    assert [one.role for one in job.processes.by_pid.values()] == ["trainer", "trainer"]
    why = job.cpu.delay_parts(1, jobs.at(5))["cpu.contention"]
    assert why == pytest.approx(1.0, abs=0.01) if crowded else why == 0
