"""Ranks that no launcher has numbered: who counts as one, which number it has, and what is said of that."""

from typing import Any

from perfdoctor.knowledge.frames import Frame
from perfdoctor.knowledge.launchers import TORCH
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.unseen_ranks import counted_ranks
from tests.builders.jobs import OWN, process, stacks, thread, timeline

STARTER, FIRST, SECOND = 10, 11, 12
BACKWARD = Frame("/v/lib/python3.11/site-packages/torch/_tensor.py", "Tensor.backward", 630)
LOADING = Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 700)


def spawned(first: dict[str, Any], second: dict[str, Any]) -> JobTimeline:
    """Two ranks with their variables, and who has started them and keeps their store; the second one only loads."""
    starter = [*process(STARTER), *thread(STARTER, STARTER, "S"), *thread(15, STARTER, "S", name="pt_tcpstore_uv")]
    ranks = [*process(FIRST, parent=STARTER, **first), *process(SECOND, parent=STARTER, started_s=-8, **second)]
    threads = [
        *(*thread(FIRST, FIRST), *thread(16, FIRST, "S", name="pt_gloo_runloop")),
        *(*thread(SECOND, SECOND, "S"), *thread(17, SECOND, "S", name="pt_gloo_runloop")),
    ]
    return timeline([*starter, *ranks, *threads, *stacks(FIRST, (OWN, BACKWARD)), *stacks(SECOND, (OWN, LOADING))])


def numbers(job: JobTimeline) -> dict[int, int | None]:
    return {trainer.pid: trainer.rank for trainer in job.processes.trainers}


def test_who_exchanges_data_is_a_rank_even_if_it_was_not_seen_in_its_backward_pass() -> None:
    job = spawned({}, {})
    assert numbers(job) == {FIRST: 0, SECOND: 1}
    assert not job.processes.numbered


def test_torch_tells_which_is_which() -> None:
    job = spawned({TORCH.rank: "3", TORCH.world: "4"}, {TORCH.rank: "1", TORCH.world: "4"})
    assert numbers(job) == {FIRST: 3, SECOND: 1}
    assert (job.processes.numbered, job.processes.world_size) == (True, 4)


def test_that_ranks_were_only_counted_is_said() -> None:
    assert [one.probe for one in counted_ranks(2, numbered=False)] == ["ranks"]
    assert counted_ranks(2, numbered=True) == []
    assert counted_ranks(1, numbered=False) == []
