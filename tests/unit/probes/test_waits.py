"""The waits probe on jobs of many processes, in a folder tree that stands in for /proc: into which it looks first."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import pytest

from perfdoctor.probes.readers.syscalls import NAMES
from perfdoctor.probes.waits import MOST_INTO, MOST_PROCESSES, WaitsProbe
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Fact, WaitSeen
from tests.processes.watching import Watched, plant

# No process of the machine has such an id.
LAUNCHER, FIRST_RANK, FIRST_WORKER = 9_000_000, 9_000_001, 9_000_100
RANKS = range(FIRST_RANK, FIRST_RANK + 8)


def workers(each: int) -> range:
    return range(FIRST_WORKER, FIRST_WORKER + len(RANKS) * each)


def looked_into(
    root: Path, *members: int, seconds: int, elsewhere: Mapping[int, str] = MappingProxyType({})
) -> list[list[int]]:
    """Second by second, into whose waits the probe looks in a job that hangs.

    Args:
        root: a folder for the tree.
        members: the job's processes; what comes after the ranks was forked.
        seconds: for how long it looks.
        elsewhere: which processes wait in another call than a futex.
    """
    for pid in members:
        call = elsewhere.get(pid, "futex")
        number = next(one for one, name in NAMES.items() if name == call)
        files = {"status": "TracerPid:\t0\n", "syscall": f"{number} 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f0\n"}
        plant(root / f"proc/{pid}", files)
    probe = WaitsProbe(root)
    probe.open(Watched(*members, forked=[pid for pid in members if pid >= FIRST_WORKER]))
    samples = (probe.sample(second * NS_PER_S) for second in range(seconds))
    return [[one.pid for one in sample if isinstance(one, WaitSeen)] for sample in samples]


@pytest.mark.parametrize("each", [0, 12, 100])
def test_ranks_come_before_workers_however_many_there_are(tmp_path: Path, each: int) -> None:
    seen = looked_into(tmp_path, LAUNCHER, *RANKS, *workers(each), seconds=5)
    assert all(len(sample) <= MOST_INTO for sample in seen)
    assert [*chain.from_iterable(seen)][: 1 + len(RANKS)] == [LAUNCHER, *RANKS]


def test_who_waits_as_nobody_else_does_comes_before_those_who_wait_alike(tmp_path: Path) -> None:
    every = workers(4)
    odd, last_rank = every[20], RANKS[-1]
    elsewhere = {last_rank: "pause", odd: "flock"}
    seen = [*chain.from_iterable(looked_into(tmp_path, LAUNCHER, *RANKS, *every, seconds=6, elsewhere=elsewhere))]
    assert seen[:2] == [LAUNCHER, last_rank]
    assert seen.index(odd) == 1 + len(RANKS)


def test_all_have_their_turn(tmp_path: Path) -> None:
    every = workers(12)
    assert len(every) > MOST_PROCESSES
    seen = chain.from_iterable(looked_into(tmp_path, *every, seconds=2 * len(every)))
    assert sorted(seen) == list(every)


@pytest.mark.parametrize(
    ("mount", "membership", "state", "frozen"),
    [
        ("/sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer", "4:freezer:/job", "freezer.state", "FROZEN\n"),
        ("/sys/fs/cgroup/unified rw - cgroup2 cgroup rw", "0::/job", "cgroup.events", "populated 1\nfrozen 1\n"),
    ],
)
def test_with_which_control_group_a_process_is_frozen_and_when_it_thaws_is_seen(
    tmp_path: Path, mount: str, membership: str, state: str, frozen: str
) -> None:
    group = tmp_path / mount.split()[0].lstrip("/") / "job"
    plant(tmp_path / "proc/self", {"mountinfo": f"20 1 0:20 / {mount}\n"})
    plant(tmp_path / f"proc/{FIRST_RANK}", {"status": "TracerPid:\t0\n", "cgroup": f"{membership}\n"})
    probe = WaitsProbe(tmp_path)
    probe.open(Watched(FIRST_RANK))
    told = []
    for second, says in enumerate(("THAWED\nfrozen 0\n", frozen, frozen, "THAWED\nfrozen 0\n")):
        plant(group, {state: says})
        told.append([one.value for one in probe.sample(second * NS_PER_S) if isinstance(one, Fact)])
    assert told == [[], ["/job"], [], [""]]
