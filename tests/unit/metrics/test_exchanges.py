"""Collectives that Python calls, by where they are called."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.exchanges import read_exchanges, sending_buffers
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

TORCH = "/v/lib/python3.11/site-packages/torch"
MODULE = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1)
BACKWARD = Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 1)
EXCHANGE = Frame(f"{TORCH}/distributed/distributed_c10d.py", "all_reduce", 1)


def line(number: int) -> Frame:
    return Frame("/job/train.py", "main", number)


def test_exchanges_are_told_apart_by_what_calls_them() -> None:
    forward, backward = (line(3), MODULE, EXCHANGE), (line(4), BACKWARD, EXCHANGE)
    besides = [(line(number), EXCHANGE) for number in (6, 6, 7)]
    idle = (line(1),)
    found = read_exchanges(Stacks.read(jobs.stacks(1, forward, backward, *besides, idle, times=600, every_s=0.01)), {1})
    assert found.forward / found.spent == pytest.approx(1 / 6, abs=0.01)
    assert found.backward / found.spent == pytest.approx(1 / 6, abs=0.01)
    [(first, most), (second, less)] = found.besides_passes()
    assert (first, second) == ("/job/train.py:6 main", "/job/train.py:7 main")
    assert (most, less) == pytest.approx((2 / 6, 1 / 6), abs=0.01)
    assert found.activations == ""


def test_batches_that_a_loader_sends_to_ranks_are_no_exchange_of_the_script() -> None:
    loader = Frame(
        "/v/lib/python3.11/site-packages/accelerate/data_loader.py", "DataLoaderDispatcher._fetch_batches", 9
    )
    stacks = jobs.stacks(1, (line(3), loader, EXCHANGE), (line(6), EXCHANGE), times=600, every_s=0.01)
    [(place, part)] = read_exchanges(Stacks.read(stacks), {1}).besides_passes()
    assert (place, part) == ("/job/train.py:6 main", pytest.approx(0.5, abs=0.01))


@pytest.mark.parametrize(("called", "how"), [("all_reduce", "added up"), ("all_to_all_single", "all to all")])
def test_how_layers_exchange_activations(called: str, how: str) -> None:
    exchange = Frame(f"{TORCH}/distributed/distributed_c10d.py", called, 1)
    forward, backward = (line(3), MODULE, exchange), (line(4), BACKWARD, exchange)
    found = read_exchanges(Stacks.read(jobs.stacks(1, forward, backward, (line(1),), times=600, every_s=0.01)), {1})
    assert found.activations == how
    of_the_job = Frame("/job/distributed/tokens.py", called, 1)  # a name of the job's own says nothing
    forward = (line(3), MODULE, of_the_job, EXCHANGE)
    found = read_exchanges(Stacks.read(jobs.stacks(1, forward, (line(1),), times=600, every_s=0.01)), {1})
    assert found.activations == "added up"


def test_buffers_that_are_sent_before_forward_passes() -> None:
    sends = Frame(f"{TORCH}/nn/parallel/distributed.py", "DistributedDataParallel._sync_buffers", 1)
    stacks = Stacks.read(jobs.stacks(1, (line(3), MODULE, sends), (line(4), BACKWARD), times=600, every_s=0.01))
    assert sending_buffers(stacks, {1}) == pytest.approx(0.5, abs=0.01)
    of_the_job = Frame("/job/nn/parallel/distributed.py", "Mine._sync_buffers", 1)
    assert sending_buffers(Stacks.read(jobs.stacks(1, (line(3), of_the_job))), {1}) is None


def test_without_stacks_nothing_is_exchanged() -> None:
    found = read_exchanges(Stacks.read([]), {1})
    assert found.activations == ""
    assert found.besides_passes() == ()


def test_a_launcher_exchanges_nothing_and_waits() -> None:
    waits = jobs.stacks(2, (Frame("/job/launch.py", "main", 9),), times=600, every_s=0.01)
    rank = jobs.stacks(1, (line(6), EXCHANGE), (line(1),), times=600, every_s=0.01)
    [(_, part)] = read_exchanges(Stacks.read([*rank, *waits]), {1}).besides_passes()
    assert part == pytest.approx(0.5, abs=0.01)
