"""Which of a job's processes train, and which load batches for them."""

from perfdoctor.capture.runs import TorchProcess, trainers_of, workers_of


def test_a_trainer_alone() -> None:
    assert trainers_of([TorchProcess(7, 1)]) == [7]
    assert workers_of([TorchProcess(7, 1)]) == 0


def test_loader_workers_are_known_by_the_names_that_torch_gives_them() -> None:
    forked = [
        TorchProcess(7, 1),
        TorchProcess(8, 7, forked=True, worker=True),
        TorchProcess(9, 7, forked=True, worker=True),
    ]
    spawned = [TorchProcess(7, 1), TorchProcess(8, 7, worker=True)]
    assert (trainers_of(forked), workers_of(forked)) == ([7], 2)
    assert (trainers_of(spawned), workers_of(spawned)) == ([7], 1)


def test_forked_ones_of_a_trainer_are_its_workers_where_torch_names_none() -> None:
    members = [TorchProcess(7, 1), TorchProcess(8, 7, forked=True), TorchProcess(9, 7, forked=True)]
    assert (trainers_of(members), workers_of(members)) == ([7], 2)
    pool_beside_workers = [*members, TorchProcess(10, 7, forked=True, worker=True)]
    assert (trainers_of(pool_beside_workers), workers_of(pool_beside_workers)) == ([7], 1)


def test_ranks_stand_in_their_order_and_their_launcher_is_none_of_them() -> None:
    members = [
        TorchProcess(5, 1),
        TorchProcess(7, 5, rank=1),
        TorchProcess(6, 5, rank=0),
        TorchProcess(8, 6, forked=True, worker=True),
    ]
    assert trainers_of(members) == [6, 7]
    assert workers_of(members) == 1


def test_spawned_ranks_train_and_not_the_process_that_waits_for_them() -> None:
    members = [TorchProcess(5, 1), TorchProcess(6, 5), TorchProcess(7, 5)]
    assert trainers_of(members) == [6, 7]
    assert workers_of(members) == 0
