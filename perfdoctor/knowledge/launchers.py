"""How a process is told which rank it is, of how many, and of which run: mostly by variables that launchers set.

And by what command lines launchers and helpers of libraries are known, which train nothing themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Launcher(NamedTuple):
    """Variables that go together; "" where a launcher has none.

    Attributes:
        rank: number of the process among those of all hosts.
        world: how many these are.
        local_rank: its number among those of its host.
        local_world: how many run on its host.
        node: number of the host.
        run: variables that together have one value in all processes of a run, and another one in every other run.
        alone: it also starts processes that have nothing to do with each other: what trains in them is a rank only if
            they exchange something.
    """

    rank: str
    world: str = ""
    local_rank: str = ""
    local_world: str = ""
    node: str = ""
    run: tuple[str, ...] = ()
    alone: bool = False

    @property
    def numbers(self) -> tuple[str, ...]:
        """What it tells each process of its place, by variables."""
        return tuple(filter(None, (self.rank, self.world, self.local_rank, self.local_world, self.node)))


MEETING = ("MASTER_ADDR", "MASTER_PORT")

# Whoever may run inside of another stands before it: what a rank of the inner one inherited from the outer one is the
# number of the inner one's launcher.
LAUNCHERS: tuple[Launcher, ...] = (
    # torch.distributed's own (docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization).
    # torchrun sets them, and so do accelerate, deepspeed, Kubeflow's PyTorchJob for its pods, and Ray Train in actors.
    Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", MEETING),
    # Lightning's own launcher sets no RANK: it is NODE_RANK times the processes of a host, plus LOCAL_RANK
    # (lightning/fabric/plugins/environments/lightning.py).
    Launcher("", "WORLD_SIZE", "LOCAL_RANK", "", "NODE_RANK", MEETING),
    # Open MPI (docs.open-mpi.org, "Environment variables set for MPI applications"; the namespace is PMIx's).
    Launcher(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        "", ("PMIX_NAMESPACE",),
    ),
    # MVAPICH2 (its user guide, "mpirun_rsh").
    Launcher("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    # Hydra, the launcher of MPICH and Intel MPI (src/pm/hydra/proxy of MPICH).
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # What else speaks PMIx (its standard, PMIx_server_setup_fork); how many there are, it tells only who asks.
    Launcher("PMIX_RANK", run=("PMIX_NAMESPACE",)),
    # srun (its manual, OUTPUT ENVIRONMENT VARIABLES). The number of tasks is that of the step: a batch script has
    # SLURM_NTASKS too, whatever is started there.
    Launcher(
        "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID", ("SLURM_JOB_ID", "SLURM_STEP_ID"),
        alone=True,
    ),
    # What torch itself keeps in a process where no launcher has numbered it: no variables, but what is read from its
    # memory (probes/readers/process_groups.py) and kept beside them, by the names of who would tell it from inside.
    Launcher(
        "torch.distributed.get_rank()", "torch.distributed.get_world_size()", run=("init_process_group.init_method",)
    ),
)  # fmt: skip
TORCH = LAUNCHERS[-1]

# What people call a run by, the most specific first; where several variables stand together, their values are joined.
NAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("SLURM_JOB_ID", "SLURM_STEP_ID"), "."),
    (("SLURM_JOB_ID",), ""),
    (("TORCHELASTIC_RUN_ID",), ""),  # torchrun's --rdzv-id
    (("RAY_JOB_ID",), ""),  # ray/src/ray/raylet/worker_pool.cc
    (("PMIX_NAMESPACE",), ""),
    (MEETING, ":"),
    (TORCH.run, ""),
)
# What torchrun calls a run that was given no name (torch/distributed/run.py).
NAMELESS = "none"
# In whose Slurm job a process runs.
ALLOCATION = "SLURM_JOB_ID"
# How addresses of this host are written in MASTER_ADDR.
THIS_HOST = ("127.", "localhost", "::1")


class Number(NamedTuple):
    """What a launcher has set in the environment of one process.

    Attributes:
        launcher: which variables it used.
        rank: None where it follows from the local rank and the host's number.
        world: how many ranks there are; None where it did not say.
        local: the process's number on its host; None where it did not say.
        here: how many ranks its host has; None where it did not say.
        node: the host's; None where it did not say.
    """

    launcher: Launcher
    rank: int | None
    world: int | None
    local: int | None
    here: int | None
    node: int | None


class Ranks(NamedTuple):
    """The ranks of the processes of a host that train together.

    Attributes:
        by_pid: their numbers.
        world: how many ranks there are, those of other hosts included, as far as that is known.
        known: a launcher has numbered them, or torch says which they are; otherwise they are counted in order of their
            start.
    """

    by_pid: dict[int, int]
    world: int
    known: bool


def number_of(variables: Mapping[str, str], *, exchanges: bool = True) -> Number | None:
    """What launchers have set in the environment of a process; None if nothing.

    Args:
        variables: of its environment.
        exchanges: whether it is known to exchange data with others, or might.
    """
    return next(_numbers(variables, exchanges), None)


def local_rank(variables: Mapping[str, str]) -> int | None:
    """The number of a process among those of its host; None where no launcher has set it."""
    number = _read(variables, LAUNCHERS[0].local_rank)
    if number is not None:
        return number
    return next((one.local for one in _numbers(variables, True) if one.local is not None), None)


def is_numbered_anew(variables: Mapping[str, str], parents: Mapping[str, str]) -> bool:
    """Whether a process was given a number of its own: what a rank starts itself inherits the rank's."""
    number = number_of(variables)
    if number is None:
        return False
    return any(variables.get(name) != parents.get(name) for name in number.launcher.numbers)


def fits_below(number: Number, children: Iterable[Number]) -> bool:
    """Whether a process that has started numbered ones is itself a rank beside them, and not their launcher.

    A launcher may have been numbered by another one: torchrun's agent in the pod of a PyTorchJob, for instance.
    """
    started = list(children)
    same = [one for one in started if (one.launcher, one.world) == (number.launcher, number.world)]
    return same == started and all((one.rank, one.local) != (number.rank, number.local) for one in started)


def number_ranks(trainers: Mapping[int, tuple[Mapping[str, str], int]], exchanging: Iterable[int] = ()) -> Ranks:
    """Ranks as the launcher or torch's own group has numbered them; where neither did, in order of start.

    Args:
        trainers: by process, the variables of its environment, and when it was started.
        exchanging: those that are known to exchange data with others.
    """
    known = set(exchanging)
    by_launcher: dict[Launcher, dict[int, Number]] = defaultdict(dict)
    for pid, (variables, _) in trainers.items():
        for number in _numbers(variables, pid in known or MEETING[0] in variables):
            by_launcher[number.launcher][pid] = number
    for launcher in LAUNCHERS:
        numbers = by_launcher[launcher]
        ranks = {pid: _rank(number, len(trainers)) for pid, number in numbers.items()}
        if len(set(ranks.values())) == len(trainers):
            worlds = [number.world for number in numbers.values() if number.world is not None]
            return Ranks(ranks, max([len(trainers), *worlds]), bool(trainers))
    by_start = sorted(trainers, key=lambda pid: (trainers[pid][1], pid))
    torch = [world for variables, _ in trainers.values() if (world := _read(variables, LAUNCHERS[0].world)) is not None]
    return Ranks({pid: rank for rank, pid in enumerate(by_start)}, max([len(trainers), *torch]), False)


def run_of(variables: Mapping[str, str], *, exchanges: bool = True) -> tuple[str, ...]:
    """What all processes of a run have alike, and those of another one on this host have not; () if nothing shows it.

    Args:
        variables: of the environment of a rank.
        exchanges: as of ``number_of``.
    """
    for number in _numbers(variables, exchanges):
        names = number.launcher.run
        values = tuple(variables.get(name, "") for name in names)
        if names and all(values):
            return (*names, *values)
    return ()


def meets_here(variables: Mapping[str, str]) -> bool:
    """Whether the ranks of a process meet on the host that it runs on, and so all run there."""
    return (variables.get(MEETING[0]) or variables.get(TORCH.run[0], "")).startswith(THIS_HOST)


def names_of(variables: Mapping[str, str]) -> tuple[str, ...]:
    """What the run of a process may be called by."""
    found = (sign.join(variables[name] for name in names) for names, sign in NAMES if all(map(variables.get, names)))
    return tuple(name for name in dict.fromkeys(found) if name != NAMELESS)


def _numbers(variables: Mapping[str, str], exchanges: bool) -> Iterator[Number]:
    for one in LAUNCHERS:
        names = (one.rank, one.world, one.local_rank, one.local_world, one.node)
        number = Number(one, *(_read(variables, name) for name in names))
        numbered = number.rank is not None if one.rank else None not in (number.local, number.node)
        if numbered and (exchanges or not one.alone):
            yield number


def _rank(number: Number, here: int) -> int:
    return number.rank if number.rank is not None else (number.node or 0) * here + (number.local or 0)


def _read(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "") if name else ""
    return int(text) if text.isdecimal() else None


# The program of torch's pool of compilers (torch/_inductor/compile_worker/subproc_pool.py): it has torch loaded, is no
# part of the training, and belongs to the process that has started it.
COMPILE_WORKER = "/torch/_inductor/compile_worker/"
# What multiprocessing's server of processes is started with (multiprocessing/forkserver.py). Those that it forks have
# its command line too; they are the processes of whoever has started it.
FORK_SERVER = "multiprocessing.forkserver"
# And a process that it spawns (multiprocessing/spawn.py).
SPAWNED = "multiprocessing.spawn"
# The keeper of shared memory that it starts beside spawned processes (multiprocessing/resource_tracker.py).
RESOURCE_TRACKER = "multiprocessing.resource_tracker"
# And what one is started with that it spawns (multiprocessing/spawn.py): neither says whose program it runs.
SPAWNED = "multiprocessing.spawn"
# What Ray calls the process of Ray Train's controller, which has torch loaded, starts ranks in other actors and asks
# how they are (ray/train/v2/_internal/execution/controller).
LAUNCH_TITLES = ("ray::TrainController",)
# What a process has mapped that is part of a Ray job (python/ray/_raylet.pyx); and the variable that says of which one,
# in all but the driver, the user's own script (src/ray/raylet/worker_pool.cc).
RAY_LIBRARY = b"/ray/_raylet.so"
RAY_JOB = "RAY_JOB_ID"
# Launchers that load torch themselves, by the scripts and modules that are started; they start ranks and train nothing:
# torchrun and its predecessor (torch/distributed/run.py, launch.py), accelerate (accelerate/commands/launch.py), and
# deepspeed, on the first host and on each (deepspeed/launcher/runner.py, launch.py).
LAUNCH_SCRIPTS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")
LAUNCH_MODULES = (
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
    *("deepspeed.launcher.runner", "deepspeed.launcher.launch"),
)
