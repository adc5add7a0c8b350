"""Files of a job to what remains of them: what is kept, what is read anew, and what cannot be read."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from perfdoctor.cluster.files import File, find_files
from perfdoctor.cluster.summaries import Gathered, gather
from perfdoctor.cluster.summary_cache import SummaryCache
from perfdoctor.errors import PerfDoctorError
from perfdoctor.reports.wording import worded
from tests.builders.rank_traces import MadeJob


class Threads:
    """Calls in threads of this process."""

    places = 1

    def __init__(self) -> None:
        self.opened = 0

    def open(self, places: int) -> Executor:
        self.opened += 1
        return ThreadPoolExecutor(places)

    def require_alive(self) -> None:
        pass


@pytest.fixture
def files(tmp_path: Path) -> list[File]:
    job = MadeJob(3)
    for rank in range(3):
        job.compute(rank, 5000.0)
    job.meet(100.0)
    job.write(tmp_path / "traces")
    return find_files([str(tmp_path / "traces")])


def read(files: list[File], place: Path) -> tuple[Gathered, list[int], bool]:
    """What was gathered, the progress that was told, and whether anything had to be read."""
    told: list[int] = []
    threads = Threads()
    with SummaryCache(place) as kept:
        found = gather(files, threads, kept, told.append)
    return found, told, bool(threads.opened)


def test_what_was_summarised_before_is_not_read_again(files: list[File], tmp_path: Path) -> None:
    first, told, has_read = read(files, tmp_path / "kept.sqlite")
    assert [rank.number for rank in first.summaries] == [0, 1, 2]
    assert (told, has_read) == ([0, 1, 2, 3], True)
    again, told, has_read = read(files, tmp_path / "kept.sqlite")
    assert [rank.number for rank in again.summaries] == [0, 1, 2]
    assert (again.known, told, has_read) == (3, [3], False)


def test_a_file_that_changed_is_read_again(files: list[File], tmp_path: Path) -> None:
    read(files, tmp_path / "kept.sqlite")
    os.utime(files[1].address, ns=(1, 1))
    found, told, _ = read(find_files([str(Path(files[1].address).parent)]), tmp_path / "kept.sqlite")
    assert (found.known, told) == (2, [2, 3])


def test_another_version_reads_all_again(files: list[File], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(files, tmp_path / "kept.sqlite")
    monkeypatch.setattr("perfdoctor.cluster.summary_cache.__version__", "9.9")
    assert read(files, tmp_path / "kept.sqlite")[0].known == 0


def test_damaged_files_are_named_with_their_reason_and_left_out(files: list[File], tmp_path: Path) -> None:
    folder = Path(files[0].address).parent
    for number in range(12):
        (folder / f"wrong{number:02d}.json").write_text("no JSON")
    Path(files[2].address).write_text("")
    found, _, _ = read(find_files([str(folder)]), tmp_path / "kept.sqlite")
    assert [rank.number for rank in found.summaries] == [0, 1]
    said = sorted(worded(item.reason) for item in found.not_examined())
    assert said == [
        "Left out: rank2.json. The file is not a profiler trace: it is empty.",
        f"Left out: {', '.join(f'wrong{number:02d}.json' for number in range(10))} and 2 more. "
        "The file is not a profiler trace: it is not JSON.",
    ]


def test_where_nothing_can_be_read_that_is_the_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("no JSON")
    with pytest.raises(PerfDoctorError, match=r"None of the 1 files can be read; of a.json: The file is"):
        read(find_files([str(tmp_path)]), tmp_path / "kept.sqlite")


def test_a_place_that_takes_no_summaries_is_said(tmp_path: Path) -> None:
    (tmp_path / "kept.sqlite").write_text("something else" * 100)
    with pytest.raises(PerfDoctorError, match="cannot be kept in") as caught:
        SummaryCache(tmp_path / "kept.sqlite")
    assert "--summaries" in caught.value.hint


def test_two_may_keep_their_summaries_in_one_place_at_the_same_time(files: list[File], tmp_path: Path) -> None:
    place = tmp_path / "kept.sqlite"
    with SummaryCache(place) as one, SummaryCache(place) as other:
        one.keep(files[0], b"first")
        other.keep(files[1], b"second")
        assert (one.find(files[1]), other.find(files[0])) == (b"second", b"first")


def test_a_place_that_nobody_named_is_given_up_with_a_line(files: list[File], tmp_path: Path) -> None:
    place = tmp_path / "kept.sqlite"
    told: list[PerfDoctorError] = []
    with SummaryCache(place, told.append) as kept:
        kept.keep(files[0], b"summary")
        with closing(sqlite3.connect(place)) as db:
            db.execute("DROP TABLE summaries")
        assert kept.find(files[0]) is None
        kept.keep(files[1], b"summary")
        assert not kept.usable
    assert [str(error).partition(" in ")[0] for error in told] == ["Summaries cannot be kept"]


def test_traces_and_recordings_together_are_two_jobs(files: list[File]) -> None:
    folder = Path(files[0].address).parent
    (folder / "node.perfdoctor").write_bytes(b"")
    with pytest.raises(PerfDoctorError, match="There are traces and recordings"):
        find_files([str(folder)])
