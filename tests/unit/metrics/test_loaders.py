"""How batches are taken: which come first, what asks for tensors' memory, what is unpickled, and what only waits."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.loaders import first_batches, taken_by_file
from perfdoctor.recording.schema import LoaderSample
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

LIBRARY = "/v/lib/python3.11"
PACKAGES = f"{LIBRARY}/site-packages"
OWN = Frame("/job/train.py", "main", 3)
LOADER = Frame(f"{PACKAGES}/torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", 1)
GET = Frame(f"{LIBRARY}/multiprocessing/queues.py", "Queue.get", 122)
ASKS = Frame(f"{PACKAGES}/torch/multiprocessing/reductions.py", "rebuild_storage_fd", 538)
BY_NAME = Frame(f"{PACKAGES}/torch/multiprocessing/reductions.py", "rebuild_storage_filename", 500)
RECEIVES = Frame(f"{LIBRARY}/multiprocessing/connection.py", "Connection._recv", 395)
POLLS = Frame(f"{LIBRARY}/multiprocessing/connection.py", "Connection._poll", 440)
MODEL = Frame(f"{PACKAGES}/torch/nn/modules/module.py", "Module._call_impl", 1)


def part(*stacks: tuple[Frame, ...]) -> float | None:
    return taken_by_file(Stacks.read(jobs.stacks(1, *stacks, times=600, every_s=0.01)))


def test_only_what_asks_for_memory_is_by_file() -> None:
    taking = (OWN, LOADER, GET)
    assert part((*taking, ASKS), (*taking, ASKS, RECEIVES), taking, (OWN, MODEL)) == pytest.approx(2 / 3, abs=0.01)
    assert part((*taking, BY_NAME), taking) == 0.0


def test_a_wait_for_a_batch_takes_nothing_over() -> None:
    taking = (OWN, LOADER, GET)
    assert part((*taking, ASKS), (*taking, POLLS), (*taking, POLLS)) == pytest.approx(1.0)
    assert part((*taking, POLLS), (OWN, MODEL)) is None
    assert taken_by_file(Stacks.read([])) is None


def test_first_batches_are_those_of_iterators_that_have_given_none() -> None:
    samples = [LoaderSample(time, 1, 4096, time % 4) for time in range(12)]
    assert first_batches(samples) == pytest.approx(1 / 4)
    assert first_batches(samples[:9]) is None
