"""Lines of the job's own source: which are read, from where, and what is said where they cannot be."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from perfdoctor.capture.job import Job
from perfdoctor.capture.own_source.reader import AROUND, PLACES, SourceReader, longest_places, split_lines
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.own_source import SOURCE_NOT_READ, SourceCall, SourceLine, SourceLoop
from perfdoctor.recording.schema import Fact, Sample, StackSegment
from tests.builders import jobs


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text("".join(f"step({number})\n" for number in range(1, 101)))
    return file


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as started:
        yield started
        started.kill()


def read(pid: int, stacks: Iterable[StackSegment], folder: Path, *, ended: bool = False) -> list[Sample]:
    """What is read of a job of one process, as if it had torch."""
    job = Job(pid)
    list(job.refresh(now_ns()))
    job.members[pid].uses_torch = True
    reader = SourceReader()
    reader.follow(job)
    if ended:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    found = list(reader.read(jobs.write(folder / "job.perfdoctor", stacks)))
    reader.close()
    job.close()
    return found


def held(samples: Iterable[Sample]) -> dict[int, str]:
    return {one.line: one.text for one in samples if isinstance(one, SourceLine)}


def test_the_innermost_lines_of_the_jobs_own_count_the_longest_first() -> None:
    often, seldom = Frame("/home/me/data.py", "load", 5), Frame("/home/me/data.py", "load", 9)
    stacks = jobs.stacks(7, (jobs.OWN, often, jobs.MODULE), (jobs.OWN, seldom), (jobs.OWN, often), (jobs.MODULE,))
    assert [(one.pid, one.file, one.line) for one in longest_places(stacks)] == [
        (7, "/home/me/data.py", 5), (7, "/home/me/data.py", 9),
    ]  # fmt: skip


def test_a_stack_that_does_not_change_lasts_until_its_segment_ends() -> None:
    (place,) = longest_places(jobs.stacks(7, (jobs.OWN,), times=1))
    assert (place.pid, place.line) == (7, jobs.OWN.line)


@pytest.mark.parametrize("ended", [False, True])
def test_the_lines_around_are_read_also_when_the_process_has_gone(
    process: "subprocess.Popen[bytes]", script: Path, tmp_path: Path, ended: bool
) -> None:
    stacks = jobs.stacks(process.pid, (Frame(str(script), "main", 3),), (Frame(str(script), "main", 50),))
    found = read(process.pid, stacks, tmp_path, ended=ended)
    wanted = [*range(1, 3 + AROUND + 1), *range(50 - AROUND, 50 + AROUND + 1)]
    assert held(found) == {number: f"step({number})" for number in wanted}
    assert not [one for one in found if isinstance(one, SourceLine) and one.changed]


@pytest.mark.parametrize("changed", [False, True])
def test_calls_and_loops_that_advice_may_change_are_kept_unless_they_may_not_be_what_runs(
    process: "subprocess.Popen[bytes]", script: Path, tmp_path: Path, changed: bool
) -> None:
    made, loop = "loader = torch.utils.data.DataLoader(dataset)", "for batch in loader:\n    loss(batch).backward()\n"
    script.write_text("\n" * 39 + f"import torch\n{made}\n{loop}")
    if changed:
        os.utime(script, (later := script.stat().st_mtime + 100, later))
    stacks = jobs.stacks(process.pid, (Frame(str(script), "main", 44),))
    calls = [one for one in read(process.pid, stacks, tmp_path) if isinstance(one, SourceCall | SourceLoop)]
    expected = [
        SourceCall(str(script), 41, "loader = torch.utils.data.DataLoader(dataset)", "DataLoader", "<module>", True),
        SourceCall(str(script), 43, "loss(batch).backward()", "backward", "<module>", None),
        SourceLoop(str(script), 42, 43, carries=False),
    ]
    assert calls == ([] if changed else expected)


@pytest.mark.parametrize(
    "source",
    ["x = DataLoader(", "\0", "x = " + "(" * 5000, "-" * 90_000 + "1", "x = y" + " + y" * 3000, "x = 1\n" * 50_000],
    ids=["unfinished", "null", "parentheses", "minus", "terms", "large"],
)
def test_lines_are_kept_of_a_file_that_cannot_be_searched_for_advice(
    process: "subprocess.Popen[bytes]", script: Path, tmp_path: Path, source: str
) -> None:
    script.write_text(f"import torch\n{source}\n")
    found = read(process.pid, jobs.stacks(process.pid, (Frame(str(script), "main", 1),)), tmp_path)
    assert {type(one) for one in found} == {SourceLine}


def test_only_so_much_source_is_searched_for_advice(
    process: "subprocess.Popen[bytes]", script: Path, tmp_path: Path
) -> None:
    scripts = [script.with_name(f"{script.stem}{number}.py") for number in range(5)]
    for one in scripts:
        one.write_text("while True: pass\n" + "#" * 150_000)
    stacks = jobs.stacks(process.pid, *((Frame(str(one), "main", 1),) for one in scripts))
    found = read(process.pid, stacks, tmp_path)
    assert len([one for one in found if isinstance(one, SourceLoop)]) == 3
    assert len([one for one in found if isinstance(one, SourceLine) and one.line == 1]) == 5


def test_warnings_that_the_job_has_printed_are_not_printed_again(
    process: "subprocess.Popen[bytes]", script: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    script.write_text("while True: '\\d' is 1\n")
    found = read(process.pid, jobs.stacks(process.pid, (Frame(str(script), "main", 1),)), tmp_path)
    assert any(isinstance(one, SourceLoop) for one in found)
    assert not recwarn.list


def test_a_file_that_was_written_after_the_start_is_said_to_be(
    process: "subprocess.Popen[bytes]", script: Path, tmp_path: Path
) -> None:
    later = script.stat().st_mtime + 100
    os.utime(script, (later, later))
    found = read(process.pid, jobs.stacks(process.pid, (Frame(str(script), "main", 3),), ()), tmp_path)
    assert {one.changed for one in found if isinstance(one, SourceLine)} == {True}


def test_what_is_no_source_of_the_jobs_own_is_not_read_and_it_is_said_why(
    process: "subprocess.Popen[bytes]", script: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "passwords"
    secret.write_text("rosebud\n")
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("x = 1\n")
    files = (str(secret), str(library), str(tmp_path / "gone.py"), "<stdin>")
    stacks = jobs.stacks(process.pid, *((Frame(file, "main", 1),) for file in files))
    found = read(process.pid, stacks, tmp_path)
    assert held(found) == {}
    assert {one.subject: one.value for one in found if isinstance(one, Fact) and one.name == SOURCE_NOT_READ} == {
        f"file:{secret}": "It is no file of Python source",
        f"file:{tmp_path / 'gone.py'}": "No such file or directory",
        "file:<stdin>": "It is no file of Python source",
    }


def test_of_very_many_lines_few_are_read(process: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    file.write_text("x\n" * 100_000)
    frames = [(Frame(str(file), "main", 20 * number),) for number in range(1, 400)]
    found = read(process.pid, jobs.stacks(process.pid, *frames, times=400, every_s=0.01), tmp_path)
    assert len(held(found)) == PLACES * (2 * AROUND + 1)


def test_lines_are_counted_as_python_does() -> None:
    assert split_lines(b"a\r\nb\x0cc\rd\xe2\x80\xa8e\n") == ["a", "b\x0cc", "d\u2028e", ""]
    assert split_lines("# -*- coding: latin-1 -*-\nä".encode("latin-1"))[1] == "ä"
    for encoding in ("nonsense", "hex", "undefined"):
        first = f"# coding: {encoding}"
        assert split_lines(first.encode() + b"\n\xff") == [first, "\ufffd"]
