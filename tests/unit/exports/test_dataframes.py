"""A recording as DataFrames: columns as documented, times on one scale, nothing unknown turned into a zero.

Every snippet of the page about notebooks runs on a recording of the corpus, and prints what stands below it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfdoctor import Recording
from perfdoctor.exports.dataframes import read_frames
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import InterpreterSample, Mark, Reading, ThreadSample, ThreadSeen
from tests.builders import jobs
from tests.builders.jobs import START, at
from tests.files import ROOT
from tests.recordings import corpus, packing

PAGE = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    file = tmp_path_factory.mktemp("corpus") / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"sound_ddp{corpus.SUFFIX}", file)
    recording = Recording.open(str(file))
    yield recording
    recording.close()


def documented() -> dict[str, list[str]]:
    """The frames and columns that docs/notebook.md lists."""
    table = PAGE.partition("## What is in a recording")[2].partition("## ")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return {name.strip(" `"): re.findall(r"`(\w+)`", columns) for name, _, columns in rows}


def test_frames_have_the_columns_that_are_documented(real: Recording) -> None:
    columns_of = documented()
    # Kinds of code and names of states stand between the columns.
    columns_of["code"] = columns_of["code"][:9]
    with jobs.recorded([]) as empty:
        for frames in (real.frames(), read_frames(empty)):
            assert {name: list(frame.columns) for name, frame in frames.items()} == columns_of


def test_times_begin_with_the_recording(real: Recording) -> None:
    length = (real.end_ns - real.start_ns) / NS_PER_S
    for name, frame in real.frames().items():
        if "time_s" in frame and len(frame):
            assert -1 < frame["time_s"].min() <= frame["time_s"].max() <= length + 1, name


def test_every_sample_of_a_thread_has_its_process_and_its_name(real: Recording) -> None:
    samples = real.frames()["thread_samples"]
    assert len(samples) == len(real.rows(ThreadSample))
    assert not samples[["pid", "process", "thread"]].isna().any().any()


def test_main_threads_stacks_cover_the_time_watched(real: Recording) -> None:
    stacks = real.frames()["stacks"]
    watched = (real.end_ns - real.start_ns) / NS_PER_S
    trainers = stacks["pid"].isin(stacks.loc[stacks["phase"] == "backward", "pid"])
    lasted = stacks[trainers & stacks["main"]].groupby("pid")["lasted_s"].sum()
    assert len(lasted) == 2
    assert ((lasted > 0.6 * watched) & (lasted <= 1.05 * watched)).all()


def test_what_could_not_be_read_is_missing_and_no_zero() -> None:
    samples = [
        *jobs.process(10, started_s=-2, ended_s=3, uses_torch=None),
        ThreadSeen(START, 10, 10, "python"),
        ThreadSample(at(1), 10, "S", None, "", 2 * NS_PER_S, NS_PER_S, None, None, 0, 0),
        ThreadSample(at(1), 99, "R", None, "", 0, 0, 1, 1, 0, 0),
        InterpreterSample(START, 10, None, None),
        Reading(at(0.5), "cpu", "job", "cpu_seconds_total", None),
        Mark(at(1), 10, "point", "step", 0),
    ]
    with jobs.recorded(samples) as recording:
        frames = read_frames(recording)
    process = frames["processes"].iloc[0]
    assert (process["started_s"], process["ended_s"]) == (-2.0, 3.0)
    assert frames["processes"]["uses_torch"].isna().all()
    known, unknown = (frames["thread_samples"].iloc[number] for number in (0, 1))
    assert (known["time_s"], known["run_s"], known["delay_s"], known["minor_faults"]) == (1.0, 2.0, 1.0, 0)
    assert frames["thread_samples"]["voluntary"].isna().tolist() == [True, False]
    assert unknown[["pid", "process", "thread"]].isna().all()
    assert frames["interpreter"][["gil_tid", "collecting"]].isna().all().all()
    assert frames["readings"]["value"].isna().all()
    assert frames["marks"]["what"].tolist() == ["step"]


SNIPPETS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_every_snippet_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packing.unpack(corpus.FOLDER / f"slow_preprocessing_workers{corpus.SUFFIX}", tmp_path / "job.perfdoctor")
    monkeypatch.chdir(tmp_path)
    assert len(SNIPPETS) == 4
    names: dict[str, object] = {}
    for code, shown in SNIPPETS:
        exec(code, names)
        # Versions of pandas differ in how wide they make columns.
        assert capsys.readouterr().out.split() == shown.split(), code
