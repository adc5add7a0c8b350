"""Which thread of a process trains: its first one, or one that Python started, as Ray Train has it."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import Sample
from tests.builders import jobs

IDLE = Frame("/v/lib/python3.11/site-packages/ray/_private/worker.py", "Worker.main_loop", 1043)
LOOP = Frame("/home/me/train.py", "fit", 31)
BACKWARD = Frame("/v/lib/python3.11/site-packages/torch/autograd/graph.py", "_engine_run_backward", 979)
FIRST, TRAINS, STARTED = 10, 40, 7


def rank(pid: int, *seen: tuple[Frame, ...]) -> list[Sample]:
    """A process whose first thread idles while another one is seen in these stacks."""
    return [
        *jobs.process(pid),
        *jobs.thread(pid, pid, "S"),
        *jobs.thread(pid + TRAINS, pid, "R", run=0.9),
        *jobs.stacks(pid, (IDLE,), ident=pid),
        *jobs.stacks(pid, *seen, ident=pid + STARTED),
    ]


def calls(tid: int, times: int = 100) -> list[Sample]:
    return jobs.code(tid, "libtorch_python.so", "torch::autograd::THPVariable_add", times)


WAITS, LEARNS = (jobs.BOOTSTRAP, LOOP), (jobs.BOOTSTRAP, LOOP, BACKWARD)


def test_a_thread_that_is_seen_in_the_backward_pass_trains() -> None:
    job = jobs.timeline([*rank(FIRST, LEARNS, WAITS), *jobs.named(FIRST + TRAINS, FIRST, FIRST + STARTED, "fit")])
    assert job.threads.main_tid(FIRST) == FIRST + TRAINS
    assert job.stacks.of_main(FIRST).ident == FIRST + STARTED  # type: ignore[union-attr]


def test_machine_code_tells_where_pythons_identifiers_were_not_read() -> None:
    samples = [*rank(FIRST, LEARNS, WAITS), *jobs.gil(FIRST, 0, FIRST + TRAINS), *calls(FIRST + TRAINS)]
    # Autograd's thread calls operators too, and does without the GIL.
    samples += [*jobs.thread(FIRST + 31, FIRST), *calls(FIRST + 31, 200)]
    assert jobs.timeline(samples).threads.main_tid(FIRST) == FIRST + TRAINS


@pytest.mark.parametrize("by_first", [1, 50])
def test_a_first_thread_that_calls_operators_trains(by_first: int) -> None:
    samples = [*rank(FIRST, WAITS), *jobs.gil(FIRST, FIRST + TRAINS), *calls(FIRST + TRAINS), *calls(FIRST, by_first)]
    assert jobs.timeline(samples).threads.main_tid(FIRST) == FIRST


def test_a_first_thread_that_waits_for_batches_trains() -> None:
    loader = Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_next_data", 1400)
    samples = [*jobs.process(FIRST), *jobs.thread(FIRST, FIRST, "S"), *jobs.thread(FIRST + TRAINS, FIRST)]
    samples += [*jobs.stacks(FIRST, (jobs.OWN, loader), ident=FIRST), *calls(FIRST + TRAINS)]
    samples += jobs.gil(FIRST, FIRST + TRAINS)
    assert jobs.timeline(samples).threads.main_tid(FIRST) == FIRST


def test_ranks_run_the_same_code() -> None:
    """Of the second rank only a wait was seen, in a place where the thread that trains waits in the first one, too."""
    job = jobs.timeline([*rank(FIRST, LEARNS, WAITS), *rank(100, WAITS)])
    assert job.stacks.of_main(100).ident == 100 + STARTED  # type: ignore[union-attr]
