"""What a thread spends on switching the GIL is determined from its switches and its time in the kernel."""

import pytest

from perfdoctor.attribution.habits import gil_switching, read_context
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import BY_STOPS, CODE_FREQUENCY, Reading
from perfdoctor.timeline.job import JobTimeline
from tests.builders import jobs

TRAINER, OTHER = 10, 11


def job(*, running: float, user: float, switches: int, holder: int | None, by_stops: bool = False) -> JobTimeline:
    """A main thread that runs and is in user mode for these fractions of the time."""
    main = jobs.thread(TRAINER, TRAINER, run=running, switches=switches)
    code = jobs.code(TRAINER, "libtorch_cpu.so", "_ZN2at4_ops3add4callEv", int(user * jobs.SECONDS * CODE_FREQUENCY))
    stops = [Reading(jobs.START, "code", "perfdoctor", BY_STOPS, 0.1)] if by_stops else []
    return jobs.timeline([*jobs.process(TRAINER), *main, *code, *jobs.gil(TRAINER, holder), *stops])


def test_the_kernels_part_is_for_the_lock_as_far_as_switches_explain_it() -> None:
    many = job(running=0.8, user=0.6, switches=10_000, holder=OTHER)
    assert gil_switching(many, TRAINER) == pytest.approx(0.25, abs=0.01)
    few = job(running=0.8, user=0.6, switches=1000, holder=OTHER)
    assert gil_switching(few, TRAINER) == pytest.approx(1000 * thresholds.GIL_SWITCH_S / 0.8, abs=0.001)


@pytest.mark.parametrize("holder", [TRAINER, 0, None])
def test_nobody_else_wants_the_lock(holder: int | None) -> None:
    assert gil_switching(job(running=0.8, user=0.6, switches=10_000, holder=holder), TRAINER) == 0


def test_samples_by_stops_do_not_tell_time_in_the_kernel() -> None:
    many = job(running=0.8, user=0.6, switches=10_000, holder=OTHER, by_stops=True)
    assert many.code.by_stops
    assert gil_switching(many, TRAINER) == 0


def test_user_time_is_no_switching() -> None:
    assert gil_switching(job(running=0.8, user=0.8, switches=10_000, holder=OTHER), TRAINER) < 0.01


@pytest.mark.parametrize("known_from_s", [0.0, 1.5])
def test_a_wait_for_a_new_worker_lasts_while_the_trainer_is_not_known_to_be_elsewhere(known_from_s: float) -> None:
    """Of the first part of a recording there may be no stack yet."""
    loader = Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_try_get_data", 9)
    times = int((3 - known_from_s) / 0.05)
    waits = jobs.stacks(TRAINER, (jobs.OWN, loader), times=times, from_s=known_from_s)
    trains = jobs.stacks(TRAINER, (jobs.OWN,), times=100, from_s=3.0)
    worker = [*jobs.process(OTHER, parent=TRAINER, started_s=0.5), *jobs.thread(OTHER, OTHER, name="pt_data_worker")]
    main = jobs.thread(TRAINER, TRAINER, "S", call="poll")
    job = jobs.timeline([*jobs.process(TRAINER, parent=0), *main, *waits, *trains, *worker])
    ((begin, end),) = read_context(job).habits[TRAINER].restarts
    assert (begin - jobs.at(0.5)) / 1e9 == pytest.approx(0, abs=0.01)
    assert (end - jobs.at(3.0)) / 1e9 == pytest.approx(0, abs=0.1)
