"""How the job is written and started: which call advice is about, and by what it could be started again."""

import pytest

from perfdoctor.analysis.own_calls import read_own_code
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.own_source import SourceCall
from perfdoctor.recording.schema import ProcessSeen, Sample
from tests.builders import jobs

LOADS = (Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 700),)


def process(command: str, **variables: str) -> list[Sample]:
    (seen,) = jobs.process(7, **variables)
    assert isinstance(seen, ProcessSeen)
    return [seen._replace(command=command)]


def call(line: int, callee: str = "DataLoader", *, used: bool | None = None) -> SourceCall:
    return SourceCall("/a/train.py", line, f"x = {callee}()", callee, "main", used)


@pytest.mark.parametrize(
    ("calls", "lines"),
    [
        ([call(3)], [3]),
        ([call(3), call(3)], [3]),  # read of two ranks
        ([call(3), call(9)], []),
        ([call(3), call(9, used=True)], [9]),
        ([call(3, used=False), call(9, used=True)], [9]),
        ([call(3, used=False)], []),  # the loop goes over something else
        ([call(3, used=True), call(9, used=True)], []),
        ([call(3), call(5, "Adam"), call(9, "StatefulDataLoader", used=True)], [9, 5]),
        ([call(5, "Adam"), call(6, "SGD")], []),  # of a GAN, or one by configuration
        ([call(5, "Adam", used=False)], [5]),  # given a part of the model: it is the job's optimizer all the same
        ([call(5, "Lion")], []),
    ],
)
def test_only_a_call_of_which_it_is_clear_that_advice_is_about_it_counts(
    calls: list[SourceCall], lines: list[int]
) -> None:
    assert [one.line for one in read_own_code(jobs.timeline(calls)).calls] == lines


@pytest.mark.parametrize(("workers", "lines"), [(0, [9]), (2, [])])
def test_where_the_job_has_no_workers_a_loader_that_is_written_with_some_is_another(
    workers: int, lines: list[int]
) -> None:
    calls = [call(3)._replace(text="x = DataLoader(rows, num_workers=3)"), call(9)]
    processes = [
        one
        for pid in range(8, 8 + workers)
        for one in [*jobs.process(pid, parent=7), *jobs.thread(pid, pid, name="pt_data_worker")]
    ]
    trainer = [*process("python train.py"), *jobs.thread(7, 7, run=1.0), *jobs.stacks(7, LOADS)]
    job = jobs.timeline([*trainer, *processes, *calls])
    assert [one.line for one in read_own_code(job).calls] == lines


@pytest.mark.parametrize(
    ("calls", "lines"),
    [
        ([call(3, used=True), call(9, used=False)], [9]),
        ([call(3, used=False), call(9, used=False)], []),
        ([call(3, used=True)], []),
        ([call(3)], []),
        ([call(3, used=False), call(5, "Adam")], [3, 5]),
    ],
)
def test_advice_about_another_loader_is_not_shown_in_that_of_the_training(
    calls: list[SourceCall], lines: list[int]
) -> None:
    found = read_own_code(jobs.timeline(calls), of_training=False).calls
    assert [one.line for one in found] == lines


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("python train.py --lr 1e-3", "python train.py --lr 1e-3"),
        ("python -c print('steps done')", ""),
        ("python train.py --token ***", ""),
        ("python train.py | tee", ""),
        ('python train.py --name "my run"', ""),
        ("python -m pkg.train --lr 1", "python -m pkg.train --lr 1"),
        ("python -c x", ""),
        ("python", ""),
        ("python -m ipykernel_launcher -f /x/kernel.json", ""),
        ("", ""),
    ],
)
def test_what_a_shell_would_read_otherwise_is_no_command(command: str, typed: str) -> None:
    assert read_own_code(jobs.timeline(process(command))).command == typed


def test_of_one_rank_its_launchers_command_is_not_known() -> None:
    rank = [*process("python -u train.py", RANK="0", WORLD_SIZE="2"), *jobs.thread(7, 7, run=1.0)]
    assert read_own_code(jobs.timeline(rank)).command == ""
