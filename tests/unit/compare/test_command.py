"""The command line of `perfdoctor compare`: which files it takes, what it refuses, and how it ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.__main__ import main
from perfdoctor.reports.wording import worded
from tests.builders.comparisons import report, step_times
from tests.builders.diagnoses import stuck
from tests.builders.jobs import write
from tests.builders.traces import loop
from tests.recordings import corpus, packing

Files = Callable[..., list[str]]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Writes reports as files before.json and after.json, and gives their names."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)

    def made(*documents: dict[str, Any]) -> list[str]:
        paths = [tmp_path / name for name in ("before.json", "after.json")]
        for path, document in zip(paths, documents, strict=True):
            path.write_text(json.dumps(document))
        return list(map(str, paths))

    return made


def recording(name: str, folder: Path) -> str:
    """A recording of the corpus."""
    file = folder / f"{name}.perfdoctor"
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", file)
    return str(file)


def slower(times: float) -> tuple[dict[str, Any], dict[str, Any]]:
    return report(step_times(1, 0.1)), report(step_times(2, 0.1 * times))


@pytest.mark.parametrize(("times", "limit", "status"), [(1.3, "5%", 3), (1.3, "50", 0), (1.0, "10%", 0)])
def test_the_exit_status_says_whether_it_became_slower(files: Files, times: float, limit: str, status: int) -> None:
    assert main(["compare", *files(*slower(times)), "--fail-on-regression", limit]) == status


@pytest.mark.parametrize("place", [0, 1])
def test_a_run_that_is_stuck_has_nothing_to_compare(
    files: Files, capsys: pytest.CaptureFixture[str], place: int
) -> None:
    runs = list(slower(1.0))
    told = worded(stuck().verdict.summary)
    runs[place] |= {"verdict": {**runs[place]["verdict"], "summary": told}, "stuck": {"kind": "lock", "summary": told}}
    names = files(*runs)
    assert main(["compare", *names]) == 1
    assert capsys.readouterr().err.startswith(f"perfdoctor: {names[place]} does not report a training: {told}")


def test_without_a_limit_a_slower_job_is_no_failure(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *files(*slower(1.3))]) == 0
    assert "33% slower: a step takes " in capsys.readouterr().out


def test_a_regression_that_cannot_be_told_is_no_success(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = slower(1.3)
    after = {**after, "blocks": [{**block, "steps": None} for block in after["blocks"]], "steps": {}}
    assert main(["compare", *files(before, after), "--fail-on-regression", "5%"]) == 1
    assert "cannot be determined" in capsys.readouterr().err


def test_a_limit_below_what_the_runs_vary_by_is_no_success(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = [report(step_times(seed, 0.1, noise=0.3)) for seed in (1, 2)]
    assert main(["compare", *files(*noisy), "--fail-on-regression", "5%"]) == 1
    told = capsys.readouterr()
    assert "cannot be determined: these runs vary by more than the limit" in told.err
    assert "several pairs of runs in turn, decide it." in " ".join(told.out.split())
    assert main(["compare", *files(*noisy), "--fail-on-regression", "60%"]) == 0


@pytest.mark.parametrize("limit", ["much", "-5%", "nan"])
def test_a_limit_that_is_none_is_wrong_usage(files: Files, limit: str) -> None:
    assert main(["compare", *files(*slower(1.0)), f"--fail-on-regression={limit}"]) == 2


def test_all_outputs_are_written(files: Files, tmp_path: Path) -> None:
    page, told, text = (tmp_path / name for name in ("compared.html", "compared.json", "compared.md"))
    outputs = ["--report", str(page), "--json", str(told), "--markdown", str(text)]
    assert main(["compare", *files(*slower(1.3)), *outputs]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert text.read_text().startswith("## 33% slower")
    found = json.loads(told.read_text())
    assert (found["schema"], found["answer"], found["regressed"]) == (1, "slower", None)
    assert found["pace"]["speedup"]["low"] < found["pace"]["speedup"]["value"] < 1
    assert main(["compare", *files(*slower(1.3)), *outputs]) == 0  # what perfdoctor wrote is replaced


def test_what_perfdoctor_has_not_written_stays(files: Files, tmp_path: Path) -> None:
    mine = tmp_path / "notes.md"
    mine.write_text("# Mine\n")
    assert main(["compare", *files(*slower(1.3)), "--markdown", str(mine)]) == 1
    assert mine.read_text() == "# Mine\n"
    assert main(["compare", *files(*slower(1.3)), "--markdown", str(mine), "--force"]) == 0
    assert "33% slower" in mine.read_text()


def test_on_github_the_summary_and_an_annotation_say_it(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# Before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main(["compare", *files(*slower(1.3)), "--fail-on-regression", "5%"]) == 3
    assert summary.read_text().startswith("# Before\n## 33% slower")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert len(lines) == 1
    assert lines[0].startswith("::error title=perfdoctor compare::33%25 slower")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"", "is empty"),
        (b"hello", "neither a recording nor a JSON report nor a profiler trace: it is not JSON"),
        (b"\n<!DOCTYPE html><title>A report</title>", "profiler trace: it is an HTML page"),
        (bytes(range(200)), "profiler trace: it is not text"),
        (b'{"a": 1}', "without traceEvents"),
        (b'{"schema": 1, "perfdoctor": "0.1.0", "diagnosis": {}, "trials": []}', "report of several runs"),
        (b'{"schema": 1, "perfdoctor": "0.1.0", "verdict', "is damaged"),
        (json.dumps({**report([0.1] * 20), "schema": 2}).encode(), "schema 2"),
        (b"SQLite format 3\x00" + bytes(200), "SQLite"),
    ],
    ids=[
        "missing",
        "empty",
        "text",
        "page",
        "bytes",
        "other JSON",
        "treated",
        "cut short",
        "another schema",
        "another database",
    ],
)
def test_files_that_hold_no_run_are_refused(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    before, _ = files(*slower(1.0))
    other = tmp_path / "other"
    if content is not None:
        other.write_bytes(content)
    assert main(["compare", before, str(other)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert message in said[0]
    assert len(said) == 2  # the reason, and the next move


def test_a_recording_of_nothing_is_refused(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, _ = files(*slower(1.0))
    assert main(["compare", before, str(write(tmp_path / "empty.perfdoctor"))]) == 1
    assert "does not report a training" in capsys.readouterr().err


def test_a_run_is_not_compared_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither as the same file, nor as a recording and the report that was made of it."""
    file = recording("sound_from_inside", tmp_path)
    told = str(tmp_path / "told.json")
    assert main(["report", file, "--json", told]) == 0
    for other in (file, told):
        assert main(["compare", file, other]) == 1
        assert "are the same run" in capsys.readouterr().err


def test_two_recordings_from_outside_are_compared_by_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = recording("slow_preprocessing_workers", tmp_path), recording("sound_busy_workers", tmp_path)
    assert main(["compare", before, after]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("The pace is not known; preparing the input on the CPU takes ")
    assert "No step of either run was marked, counted or traced" in said
    assert "If the model's own arithmetic takes what it took, it is " in said
    assert "whether that came true was not seen" in said


def test_a_trace_and_marked_steps_have_no_pace_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = loop(8_000.0, 2_000.0).write(tmp_path / "trace.json.gz")
    assert main(["compare", recording("sound_from_inside", tmp_path), str(trace)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("The paces cannot be compared; ")
    assert "marked before, traced after. A step need not be the same in both" in said


def test_traces_are_compared_by_their_steps(tmp_path: Path) -> None:
    before = loop(8_000.0, 2_000.0).write(tmp_path / "before.json")
    folder = tmp_path / "after"
    folder.mkdir()
    loop(8_000.0, 500.0).write(folder / "rank0.json.gz")
    told = tmp_path / "told.json"
    assert main(["compare", str(before), str(folder), "--json", str(told)]) == 0
    found = json.loads(told.read_text())
    assert found["answer"] == "faster"
    assert found["pace"]["before_s"] == pytest.approx(0.01, rel=0.01)
    assert found["pace"]["speedup"]["value"] == pytest.approx(10 / 8.5, rel=0.01)
