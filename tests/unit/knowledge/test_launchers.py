"""Which rank a process is, by the variables that launchers set; their values are those of real launches."""

from collections.abc import Mapping

import pytest

from perfdoctor.capture.redact import mask_environment
from perfdoctor.knowledge.launchers import (
    LAUNCHERS,
    NAMES,
    TORCH,
    Ranks,
    fits_below,
    is_numbered_anew,
    local_rank,
    meets_here,
    names_of,
    number_of,
    number_ranks,
    run_of,
)

MEETING = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
SRUN = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}
AGENT = {**SRUN, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"}
TORCHRUN = {**MEETING, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}


def task(number: int) -> dict[str, str]:
    """One of srun's, two to a host."""
    return {**SRUN, "SLURM_PROCID": str(number), "SLURM_LOCALID": str(number % 2), "SLURM_NODEID": str(number // 2)}


def rank(number: int) -> dict[str, str]:
    """One of torchrun's, two to a host."""
    return {**TORCHRUN, "RANK": str(number), "LOCAL_RANK": str(number % 2)}


def group(number: int, meeting: str = "127.0.0.1:29500") -> dict[str, str]:
    """What torch keeps in one of four that were started by nobody who says so in variables."""
    return {TORCH.rank: str(number), TORCH.world: "4", **dict.fromkeys(TORCH.run, meeting)}


def numbered(*trainers: Mapping[str, str], exchanging: bool = False) -> Ranks:
    """Ranks of processes 1, 2, …, started one after the other."""
    pids = dict(enumerate(trainers, start=1))
    return number_ranks({pid: (one, pid) for pid, one in pids.items()}, pids if exchanging else ())


@pytest.mark.parametrize(
    ("second", "third", "world"),
    [
        (rank(2), rank(3), 4),
        (task(2) | MEETING, task(3) | MEETING, 4),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
            4,
        ),
        ({"MV2_COMM_WORLD_RANK": "2", "MV2_COMM_WORLD_SIZE": "4"}, {"MV2_COMM_WORLD_RANK": "3"}, 4),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, {"PMI_RANK": "3", "PMI_SIZE": "4"}, 4),
        ({"PMIX_RANK": "2", "PMIX_NAMESPACE": "p.1"}, {"PMIX_RANK": "3", "PMIX_NAMESPACE": "p.1"}, 2),
        (
            {"LOCAL_RANK": "0", "NODE_RANK": "1", "WORLD_SIZE": "4"},
            {"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4"},
            4,
        ),
        (group(2), group(3), 4),
    ],
    ids=["torchrun", "srun", "openmpi", "mvapich", "pmi", "pmix", "lightning", "torch itself"],
)
def test_each_launcher_numbers_its_ranks(second: dict[str, str], third: dict[str, str], world: int) -> None:
    assert numbered(second, third) == Ranks({1: 2, 2: 3}, world, True)


def test_a_rank_of_torchrun_under_srun_has_torchruns_number() -> None:
    assert numbered(AGENT | rank(2), AGENT | rank(3)).by_pid == {1: 2, 2: 3}


def test_a_rank_of_mpirun_in_a_slurm_job_has_mpiruns_number() -> None:
    mpi = {"OMPI_COMM_WORLD_SIZE": "4", **AGENT}
    assert numbered({**mpi, "OMPI_COMM_WORLD_RANK": "2"}, {**mpi, "OMPI_COMM_WORLD_RANK": "3"}).by_pid == {1: 2, 2: 3}


def test_a_number_that_all_have_is_that_of_who_started_them() -> None:
    """A task of srun, or a pod, that spawns its trainers with multiprocessing."""
    assert numbered(AGENT | MEETING, AGENT | MEETING) == Ranks({1: 0, 2: 1}, 2, False)
    assert numbered({"RANK": "1", "WORLD_SIZE": "2"}, {"RANK": "1", "WORLD_SIZE": "2"}).known is False


def test_what_torch_keeps_tells_apart_whom_a_launcher_has_numbered_alike() -> None:
    assert numbered(AGENT | group(3), AGENT | group(1)) == Ranks({1: 3, 2: 1}, 4, True)


def test_ranks_that_were_told_the_same_meeting_are_one_run() -> None:
    assert run_of(group(0)) == run_of(group(1)) != run_of(group(0, "file:///shared/meeting"))
    assert run_of({TORCH.rank: "0", TORCH.world: "2"}) == ()
    assert names_of(group(0)) == ("127.0.0.1:29500",)


def test_ranks_that_meet_on_this_host_are_all_here() -> None:
    assert meets_here(group(0))
    assert meets_here({"MASTER_ADDR": "localhost"})
    assert not any(map(meets_here, (group(0, "10.0.0.1:29500"), group(0, "file:///shared/meeting"), MEETING, {})))


def test_tasks_of_srun_that_exchange_nothing_are_no_ranks() -> None:
    assert numbered(task(3)) == Ranks({1: 0}, 1, False)
    assert numbered(task(3), exchanging=True) == Ranks({1: 3}, 4, True)
    assert number_of(task(3), exchanges=False) is None


def test_a_batch_script_that_runs_a_training_by_itself_is_a_world_of_one() -> None:
    """sbatch sets SLURM_NTASKS for it, however few of them it starts."""
    batch = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", **MEETING}
    assert numbered(batch).world == 1


def test_who_was_started_by_a_rank_has_its_number_and_is_none() -> None:
    assert is_numbered_anew(rank(2), AGENT)
    assert is_numbered_anew(rank(2), {})
    assert not is_numbered_anew(rank(2), rank(2))
    assert not is_numbered_anew({}, {})


def test_a_launcher_that_was_numbered_itself_is_no_rank() -> None:
    pod = {**MEETING, "RANK": "1", "WORLD_SIZE": "2"}
    assert is_numbered_anew(rank(2), pod)
    started = [number_of(rank(one)) for one in (2, 3)]
    assert not fits_below(number_of(pod), started)  # type: ignore[arg-type]
    assert not fits_below(number_of(AGENT), started)  # type: ignore[arg-type]


def test_a_trainer_that_starts_the_other_ranks_is_one_too() -> None:
    """Lightning's own launcher: the script is rank 0."""
    first, second = (number_of({"LOCAL_RANK": one, "NODE_RANK": "0", "WORLD_SIZE": "2"}) for one in "01")
    assert fits_below(first, [second])  # type: ignore[arg-type, list-item]
    assert fits_below(first, [])  # type: ignore[arg-type]


def test_a_run_is_told_by_what_numbers_its_ranks() -> None:
    assert run_of(rank(0)) == run_of(AGENT | rank(1)) != run_of(rank(0) | {"MASTER_PORT": "29501"})
    assert run_of(task(0)) == run_of(task(3)) != run_of(task(0) | {"SLURM_STEP_ID": "1"})
    # A script that sets RANK itself, and meets elsewhere.
    assert run_of(task(0) | {"RANK": "0"}) == run_of(task(1) | {"RANK": "1"}) == run_of(task(2))
    assert run_of({"PMI_RANK": "0", "PMI_SIZE": "2"}) == ()
    assert run_of({}) == ()


def test_a_run_has_the_names_that_people_know() -> None:
    assert names_of(AGENT | rank(0)) == ("4711.0", "4711", "node0:29500")
    assert names_of({"TORCHELASTIC_RUN_ID": "night-run"}) == ("night-run",)
    assert names_of({}) == ()


def test_recordings_keep_what_launchers_set() -> None:
    set_by_launchers = {name: "1" for one in LAUNCHERS for name in (*one.numbers, *one.run)}
    named = {name: "1" for names, _ in NAMES for name in names}
    assert mask_environment(set_by_launchers | named) == set_by_launchers | named


def test_the_number_on_a_host_may_be_told_by_another_launcher_than_the_rank() -> None:
    """A script under srun that sets RANK and no LOCAL_RANK."""
    assert local_rank(rank(3)) == 1
    assert local_rank(task(3) | MEETING | {"RANK": "3", "WORLD_SIZE": "4"}) == 1
    assert local_rank({"LOCAL_RANK": "2"} | task(3)) == 2
    assert local_rank(MEETING) is None
