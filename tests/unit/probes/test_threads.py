"""The threads probe on jobs of thousands of threads, in a folder tree that stands in for /proc: how much it reads."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfdoctor.probes.readers.kept_files import Room
from perfdoctor.probes.threads import MOST_ASLEEP, MOST_AWAKE, MOST_NEW, MOST_WORKERS, RATE_HZ, ThreadsProbe
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import THINNED, Event, Sample, ThreadSample, ThreadSeen
from tests.processes.watching import Watched, plant

TRAINER = 100
# Files of one sample at most: schedstat twice, syscall, stat and, of a main thread, status.
FILES_OF_A_SAMPLE = 5


class Tree:
    """A folder tree in the place of /proc, whose threads can be made to run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ran: Counter[int] = Counter()
        plant(root, {"proc/loadavg": "0 0 0 1/1 1\n"})

    def add(self, pid: int, tids: Sequence[int], name: str = "python") -> None:
        """Threads that sleep; they share their files until they run."""
        alike = plant(
            self.root / name,
            {
                "comm": f"{name}\n",
                "schedstat": "0 0 0\n",
                "stat": f"1 ({name}) S 1 1 1 0 -1 0 100 0 3 0 1 5 2 2 20 0 9 0 9 10 10 18 0\n",
                "syscall": "202 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n",
                "status": "voluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t1\n",
            },
        )
        tasks = self.root / f"proc/{pid}/task"
        tasks.mkdir(parents=True, exist_ok=True)
        for tid in tids:
            (tasks / str(tid)).symlink_to(alike)

    def run(self, pid: int, tids: Sequence[int], seconds: float) -> None:
        """Lets threads have run so long since the last time."""
        for tid in tids:
            folder = self.root / f"proc/{pid}/task/{tid}"
            if folder.is_symlink():
                alike = folder.readlink()
                folder.unlink()
                shutil.copytree(alike, folder)
            self._ran[tid] += round(seconds * NS_PER_S)
            (folder / "schedstat").write_text(f"{self._ran[tid]} 0 0\n")


class Job(Watched):
    """Processes of which some were forked."""

    def __init__(self, *pids: int, forked: Sequence[int] = ()) -> None:
        super().__init__(*pids, *forked, torch=True)
        self._forked = tuple(forked)

    def forked_pids(self) -> tuple[int, ...]:
        return self._forked


class Watching:
    """A probe that watches, and what it read and saw."""

    def __init__(self, tree: Tree, job: Watched, files: int = 100_000) -> None:
        self.room = Room(files)
        self.probe = ThreadsProbe(tree.root, self.room)
        assert not list(self.probe.open(job))
        self.now_ns = NS_PER_S
        self.reads: list[int] = []  # by tick
        self.seen: list[list[Sample]] = []

    def ticks(self, count: int) -> None:
        for _ in range(count):
            before = self.room.reads
            self.seen.append(list(self.probe.sample(self.now_ns)))
            self.reads.append(self.room.reads - before)
            self.now_ns += NS_PER_S // RATE_HZ

    def samples(self, last: int) -> Counter[int]:
        """How often each thread was sampled in the last ticks."""
        found = (one for seen in self.seen[-last:] for one in seen if isinstance(one, ThreadSample))
        return Counter(sample.tid for sample in found)

    def close(self) -> list[str]:
        """Ends the watching; returns what was thinned."""
        said = list(self.probe.close())
        assert all(isinstance(one, Event) and one.kind == f"threads{THINNED}" for one in said)
        return [one.text for one in said if isinstance(one, Event)]


SLEEPERS = range(1000, 4000)


@pytest.fixture
def crowd(tmp_path: Path) -> Tree:
    """A trainer with 3,000 threads that sleep."""
    tree = Tree(tmp_path)
    tree.add(TRAINER, [TRAINER, *SLEEPERS])
    return tree


def test_the_first_look_is_spread_over_ticks_and_begins_with_the_main_thread(crowd: Tree) -> None:
    watching = Watching(crowd, Job(TRAINER))
    watching.ticks(1)
    met = [one.tid for one in watching.seen[0] if isinstance(one, ThreadSeen)]
    assert met[0] == TRAINER
    assert len(met) == MOST_NEW
    watching.ticks(len(SLEEPERS) // MOST_NEW)
    assert sum(isinstance(one, ThreadSeen) for seen in watching.seen for one in seen) == len(SLEEPERS) + 1
    assert max(watching.reads) <= FILES_OF_A_SAMPLE * (MOST_NEW + 1) + MOST_ASLEEP
    watching.close()


def test_a_tick_is_as_long_with_3000_sleepers_as_with_a_few(crowd: Tree) -> None:
    watching = Watching(crowd, Job(TRAINER))
    watching.ticks(60)
    watching.ticks(100)
    assert max(watching.reads[-100:]) <= MOST_ASLEEP + FILES_OF_A_SAMPLE
    assert watching.samples(100) == {TRAINER: 100}
    (said,) = watching.close()
    assert "3000 sleeping threads were looked at every 1." in said


def test_whoever_wakes_up_is_found_and_then_sampled_in_every_tick(crowd: Tree) -> None:
    crowd.run(TRAINER, [2345], 0)
    watching = Watching(crowd, Job(TRAINER))
    watching.ticks(120)
    for _ in range(100):
        crowd.run(TRAINER, [2345], 0.004)
        watching.ticks(1)
    assert watching.samples(20)[2345] == 20
    assert 2345 in watching.samples(100)


def test_threads_that_train_are_sampled_in_every_tick_whatever_else_is_thinned(tmp_path: Path) -> None:
    tree, busy = Tree(tmp_path), range(1000, 1060)
    tree.add(TRAINER, [TRAINER, *busy])
    tree.add(TRAINER, [101], name="pt_autograd_0")
    tree.run(TRAINER, busy, 0)
    watching = Watching(tree, Job(TRAINER))
    watching.ticks(10)
    watching.probe.share = 0.05
    for _ in range(50):
        tree.run(TRAINER, busy, 0.002)
        watching.ticks(1)
    sampled = watching.samples(50)
    assert sampled[TRAINER] == sampled[101] == 50
    assert sum(sampled[tid] for tid in busy) <= 50 * (MOST_AWAKE + MOST_ASLEEP) * 0.05
    assert len(sampled) == len(busy) + 2
    (said,) = watching.close()
    assert "other threads that were awake were sampled in" in said


def test_a_thread_that_computes_in_the_place_of_the_main_one_counts_as_training(tmp_path: Path) -> None:
    """As where a framework trains in a thread of its own."""
    tree, busy = Tree(tmp_path), range(1040, 1060)
    tree.add(TRAINER, [TRAINER, *busy])
    tree.run(TRAINER, busy, 0)
    watching = Watching(tree, Job(TRAINER))
    watching.ticks(5)
    watching.probe.share = 0.05
    for _ in range(60):
        tree.run(TRAINER, [1042], 1.0)  # the tree's clock is not that of samples: it computes all the time
        tree.run(TRAINER, [tid for tid in busy if tid != 1042], 1e-9)
        watching.ticks(1)
    assert watching.samples(30)[1042] == 30


def test_workers_are_sampled_evenly(tmp_path: Path) -> None:
    tree, workers = Tree(tmp_path), range(200, 328)
    for pid in (TRAINER, *workers):
        tree.add(pid, [pid])
    watching = Watching(tree, Job(TRAINER, forked=workers))
    watching.ticks(40)
    watching.ticks(40)
    sampled = watching.samples(40)
    assert sampled[TRAINER] == 40
    assert {sampled[pid] for pid in workers} == {40 * MOST_WORKERS // len(workers)}
    (said,) = watching.close()
    assert "main threads of workers were sampled in" in said


@pytest.mark.parametrize("files", [0, 10, 500])
def test_with_too_few_open_files_nothing_is_missed(crowd: Tree, files: int) -> None:
    watching = Watching(crowd, Job(TRAINER), files)
    watching.ticks(60)
    assert len({one.tid for seen in watching.seen for one in seen if isinstance(one, ThreadSample)}) == 3001
    assert not [one for seen in watching.seen for one in seen if isinstance(one, ThreadSample) and one.state == "X"]
    watching.close()


def test_threads_that_were_not_met_yet_are_reported(crowd: Tree) -> None:
    watching = Watching(crowd, Job(TRAINER))
    watching.ticks(10)
    (said,) = watching.close()
    assert f"{3001 - 10 * MOST_NEW} threads were not looked at yet" in said


def test_of_a_small_job_nothing_is_thinned(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.add(TRAINER, [TRAINER, *range(1000, 1064)])
    watching = Watching(tree, Job(TRAINER))
    watching.ticks(100)
    assert watching.close() == []
