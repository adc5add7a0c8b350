"""Reports reach the place where the user wants them, whole or not at all, and only that place."""

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perfdoctor.diagnosis import Diagnosis, NotExamined, NoVerdict, Why
from perfdoctor.errors import PerfDoctorError
from perfdoctor.reports import compared_html, compared_markdown, treated_html
from perfdoctor.reports.json import render
from perfdoctor.reports.outputs import PATCH_BEGINS, conclude, deliver, require_places, write_outputs
from tests.builders.comparisons import compared, report
from tests.builders.diagnoses import input_bound, sound, undecided
from tests.builders.jobs import write
from tests.builders.trials import treated as treatment
from tests.processes.attaching import ENVIRONMENT

RECORDING = Path("job.recording")


def test_writes_what_was_asked_for_and_nothing_else(tmp_path: Path) -> None:
    write_outputs(sound(), report=tmp_path / "a.html", json=None, recording=RECORDING)
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_an_old_report_is_replaced(tmp_path: Path) -> None:
    told = tmp_path / "a.json"
    told.write_text(render(replace(input_bound(), job={"command": "old" * 100_000})))
    write_outputs(sound(), report=None, json=told, recording=RECORDING)
    assert told.read_text().startswith("{")
    assert "old" * 10 not in told.read_text()


def test_a_report_that_says_nothing_does_not_replace_one_that_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"report": tmp_path / "a.html", "json": tmp_path / "a.json"}

    def written(diagnosis: Diagnosis) -> list[str]:
        write_outputs(diagnosis, **places)
        return [place.read_text() for place in places.values()]

    nothing, other = written(undecided()), written(replace(undecided(), version="9"))
    assert other != nothing
    assert capsys.readouterr().err == ""
    told = written(sound())
    assert written(undecided()) == told
    assert capsys.readouterr().err.count("is left as it was") == 2
    assert written(input_bound()) != told
    assert written(undecided()) == written(input_bound())


def test_what_perfdoctor_wrote_may_be_replaced_and_nothing_else(tmp_path: Path) -> None:
    ours = {name: tmp_path / f"a.{name}" for name in ("json", "report")}
    write_outputs(input_bound(), **ours)
    patch, treated, empty = tmp_path / "best.diff", tmp_path / "treated.html", tmp_path / "empty"
    patch.write_text(f"{PATCH_BEGINS}\n--- a/train.py\n")
    treated.write_text(treated_html.render(treatment()))
    comparison = compared(report([0.1] * 100), report([0.05] * 100))
    markdown, side_by_side = tmp_path / "compared.md", tmp_path / "compared.html"
    markdown.write_text(compared_markdown.render(comparison))
    side_by_side.write_text(compared_html.render(comparison))
    empty.touch()
    require_places(*ours.values(), patch, treated, markdown, side_by_side, empty)
    for theirs in ('{"lr": 0.1}', "<!doctype html><title>Mine</title>", "--- a/train.py\n", "x"):
        file = tmp_path / "theirs"
        file.write_text(theirs)
        with pytest.raises(PerfDoctorError, match="is there already, and is no report") as caught:
            require_places(file)
        assert "--force" in caught.value.hint
        require_places(file, force=True)


def test_what_lies_there_when_a_report_is_written_stays(tmp_path: Path) -> None:
    """As where ``diagnose()`` ends: the diagnosis is shown, and the recording kept."""
    theirs, ours = tmp_path / "config.json", tmp_path / "a.html"
    theirs.write_text("{}")
    with pytest.raises(PerfDoctorError, match=r"config\.json is there already") as caught:
        write_outputs(input_bound(), json=theirs, report=ours, recording=RECORDING)
    assert f"perfdoctor report {RECORDING}" in caught.value.hint
    assert theirs.read_text() == "{}"
    assert ours.exists()


def test_a_recording_is_no_place_for_a_report(tmp_path: Path) -> None:
    recording = write(tmp_path / "job.perfdoctor")
    for force in (False, True):
        with pytest.raises(PerfDoctorError, match="is a recording, which cannot be made again"):
            require_places(recording, force=force)


def test_a_file_is_not_written_twice_and_a_device_may_be(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    for name in ("there", "new"):
        with pytest.raises(PerfDoctorError, match="is named for two things") as caught:
            require_places(tmp_path / "other", tmp_path / name, tmp_path / ".." / tmp_path.name / name, force=True)
        assert caught.value.hint
    require_places(tmp_path / "one", None, None, tmp_path / "two", Path("/dev/null"), Path("/dev/null"))


def test_a_report_that_says_nothing_replaces_any_other_where_it_is_forced(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_outputs(input_bound(), json=file)
    write_outputs(undecided(), json=file, force=True)
    assert '"bottleneck": null' in file.read_text()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "real" / "a.json")
    write_outputs(sound(), report=None, json=link, recording=RECORDING)
    assert link.is_symlink()
    assert (tmp_path / "real" / "a.json").read_text().startswith("{")


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        write_outputs(sound(), report=None, json=pipe, recording=RECORDING)
        assert reader.stdout is not None
        assert reader.stdout.read().startswith("{")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_one_failure_does_not_keep_the_others_from_being_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfdoctor.reports.outputs.show", lambda diagnosis: print("shown"))
    with pytest.raises(PerfDoctorError, match=r"no/a.json cannot be written") as caught:
        deliver(sound(), report=tmp_path / "a.html", json=tmp_path / "no" / "a.json", recording=RECORDING)
    assert f"perfdoctor report {RECORDING}" in caught.value.hint
    assert (tmp_path / "a.html").exists()
    assert capsys.readouterr().out == "shown\n"


def test_places_are_checked_before_the_work(tmp_path: Path) -> None:
    require_places(None, tmp_path / "a.html", tmp_path / "b.json", Path("/dev/stdout"))
    with pytest.raises(PerfDoctorError, match="There is no folder") as caught:
        require_places(tmp_path / "my results" / "a.html")
    assert caught.value.hint == f"mkdir -p '{tmp_path}/my results'"
    with pytest.raises(PerfDoctorError, match="is a folder"):
        require_places(tmp_path)


def test_no_verdict_has_a_next_move() -> None:
    with pytest.raises(PerfDoctorError, match="No bottleneck can be named") as caught:
        conclude(undecided())
    assert caught.value.hint.endswith(".")


@pytest.mark.parametrize(
    ("job", "move"),
    [
        ({"stopped": "job ended", "trainers": 0}, "The job has ended."),
        ({"stopped": "duration", "trainers": 0}, "name the process that trains"),
        ({"stopped": "duration", "trainers": 2}, "watch longer"),
    ],
)
def test_the_next_move_fits_what_was_found(job: dict[str, object], move: str) -> None:
    with pytest.raises(PerfDoctorError) as caught:
        conclude(replace(undecided(), job=job, not_examined=()))
    assert move in caught.value.hint


@pytest.mark.parametrize(("pid", "move"), [(77, "py-spy dump --pid 77"), (None, "watch longer")])
def test_of_a_job_that_hangs_all_threads_are_worth_seeing(pid: int | None, move: str) -> None:
    verdict = replace(undecided().verdict, missing=NoVerdict(Why.STILL, "It hangs.", pid))
    with pytest.raises(PerfDoctorError) as caught:
        conclude(replace(undecided(), verdict=verdict, not_examined=()))
    assert move in caught.value.hint


def test_what_only_time_would_show_is_in_nobodys_way() -> None:
    missing = (NotExamined("stacks", "Too few.", "watch longer", too_brief=True),)
    with pytest.raises(PerfDoctorError) as caught:
        conclude(replace(undecided(), not_examined=missing, job={"pid": 1}))
    assert "Attach again" in caught.value.hint


@pytest.mark.parametrize(("probe", "move"), [("gpu", "Attach again"), ("stacks", "perfdoctor check 1")])
def test_the_next_move_depends_on_what_was_missing(probe: str, move: str) -> None:
    missing = (NotExamined(probe, "It is not there.", "install it"),)
    with pytest.raises(PerfDoctorError) as caught:
        conclude(replace(undecided(), not_examined=missing, job={"pid": 1}))
    assert move in caught.value.hint


@pytest.mark.parametrize(("target", "status"), [("/dev/null", 0), ("/dev/full", 1)])
def test_output_that_cannot_be_written_is_one_sentence(target: str, status: int) -> None:
    code = (
        "import sys\nfrom perfdoctor.reports.outputs import show\nfrom perfdoctor.errors import PerfDoctorError\n"
        "from tests.builders.diagnoses import sound\n"
        "try:\n    show(sound())\nexcept PerfDoctorError as error:\n    sys.exit(f'{error} {error.hint}')"
    )
    root = Path(__file__).resolve().parents[3]
    with open(target, "w") as out:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=out, stderr=subprocess.PIPE, text=True, cwd=root, env=ENVIRONMENT, check=False,
        )  # fmt: skip
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == status
