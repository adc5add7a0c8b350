"""`perfdoctor treat` on real jobs: what a run sees, what is left of it, and what is said where a job is no use."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from perfdoctor.causes import GARBAGE_COLLECTION
from perfdoctor.diagnosis import CauseShare, Diagnosis, Verdict
from perfdoctor.knowledge import thresholds
from perfdoctor.probes.readers.procfs import descendants_of_self
from perfdoctor.reports.wording import worded
from perfdoctor.results.treatment import Outcome, Training
from perfdoctor.treat.run import Change, Runner, SeenRun, StepWindow
from perfdoctor.treat.search import Found, search
from perfdoctor.treat.treatments import Situation, choose
from perfdoctor.treat.workplace import Workplace
from tests.builders.trials import arms
from tests.files import TARGETS
from tests.processes.attaching import PERFDOCTOR, gone, perfdoctor, refused, until

JOB = "treated_training.py"
WINDOW = StepWindow(5, 20, 60, 60)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A working folder with a job."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / JOB).write_text((TARGETS / JOB).read_text())
    return folder


@pytest.fixture
def workplace(project: Path) -> Iterator[Workplace]:
    place = Workplace(project, [])
    yield place
    place.remove()
    assert not place.scratch.exists()


def runner(workplace: Workplace, *arguments: object) -> Runner:
    return Runner([sys.executable, JOB, *map(str, arguments)], workplace)


def test_runs_of_a_job_are_the_same_and_leave_nothing(workplace: Workplace, project: Path, tmp_path: Path) -> None:
    orphan = tmp_path / "orphan"
    runs = [runner(workplace, "--orphan", orphan, "--save", "model.pt").run(Change(), WINDOW)]
    assert until(lambda: not psutil.pid_exists(int(orphan.read_text())))
    assert not [one for one in psutil.Process().children(recursive=True) if JOB in " ".join(one.cmdline())]
    runs.append(runner(workplace).run(Change(), WINDOW))
    assert [worded(run.failure) for run in runs] == ["", ""]
    assert all(len(run.ends_ns) >= 26 and run.pace() for run in runs)
    assert runs[0].losses[:20] == runs[1].losses[:20]
    assert runs[0].memory_bytes > 50e6
    assert runs[0].status is None
    assert sorted(file.name for file in project.iterdir()) == [JOB]


def test_a_daemon_of_the_job_is_none_of_ours_while_it_runs(workplace: Workplace, tmp_path: Path) -> None:
    """Else the cores that it takes would count as perfdoctor's, and the job that waits for them as sound."""
    orphan = tmp_path / "orphan"
    with runner(workplace, "--orphan", orphan).live(Change()):
        assert until(lambda: orphan.exists() and orphan.read_text())
        pid = int(orphan.read_text())
        assert pid not in descendants_of_self(Path("/"), frozenset())
    assert until(lambda: not psutil.pid_exists(pid))


def test_a_change_with_which_the_job_crashes_says_its_last_word(workplace: Workplace) -> None:
    change = Change({"loader": {"num_workers": 1}})
    run = runner(workplace, "--crash-with", "num_workers").run(change, WINDOW)
    assert worded(run.failure) == "The job ended with status 1: RuntimeError: this job wants no such thing"


def test_a_job_that_ends_by_itself_is_of_use_if_it_made_enough_steps(workplace: Workplace) -> None:
    assert not runner(workplace, "--steps", 16).run(Change(), WINDOW).failure
    assert "Only 8 steps" in worded(runner(workplace, "--steps", 8).run(Change(), WINDOW).failure)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (("true",), ["start hook", "-I"]),
        ((sys.executable, "-c", "print(1)"), ["not imported PyTorch"]),
        ((sys.executable, "-c", "import torch; open('/nowhere/x')"), ["status 1", "FileNotFoundError"]),
        ((sys.executable, "-c", "import torch"), ["no training step"]),
        ((sys.executable, JOB, "--steps", "2"), ["ended after"]),
        (("./missing",), ["cannot be started"]),
    ],
    ids=["no Python", "no torch", "crash", "no step", "too short", "no program"],
)
def test_a_job_that_is_no_use_gets_one_sentence_and_the_next_move(
    project: Path, job: tuple[str, ...], words: list[str]
) -> None:
    answer = perfdoctor("treat", "--minutes", 1, "--", *job, cwd=project)
    said, last = answer.err.splitlines()[:3], answer.err.splitlines()[3:]
    assert said[0].startswith("perfdoctor: running ")
    answer.err = "\n".join(last)
    refused(answer, *words)


def test_a_dry_run_says_what_would_be_tried(project: Path) -> None:
    answer = perfdoctor(
        *("treat", "--dry-run", "--minutes", 1, "--json", project / "out.json"),
        *("--", sys.executable, JOB, "--objects", 30_000),
        cwd=project,
    )
    assert answer.status == 0, answer.err
    assert {trial["verdict"] for trial in answer.told["trials"]} == {"not tried"}
    assert "gc.collect() rarely" in [trial["id"] for trial in answer.told["trials"]]
    assert answer.told["spent"]["runs"] == 1


def test_ctrl_c_ends_the_job_and_says_so(project: Path) -> None:
    with subprocess.Popen(
        [*PERFDOCTOR, "treat", "--", sys.executable, JOB], cwd=project, stderr=subprocess.PIPE, text=True
    ) as process:
        job: list[psutil.Process] = []
        assert until(lambda: job.extend(psutil.Process(process.pid).children()) or job)
        assert until(lambda: "torch" in Path(f"/proc/{job[0].pid}/maps").read_text())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Interrupted before the job was diagnosed." in said
    assert "Traceback" not in said
    assert gone(job[0].pid)
    assert sorted(file.name for file in project.iterdir()) == [JOB]


def test_ctrl_c_during_the_trials_reports_what_was_found(project: Path) -> None:
    with subprocess.Popen(
        [*PERFDOCTOR, "treat", "--minutes", "1.5", "--", sys.executable, JOB, "--objects", "100"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        jobs: set[int] = set()

        def second_run() -> bool:
            for child in psutil.Process(process.pid).children():
                with suppress(psutil.Error):
                    jobs.update([child.pid] if child.cmdline()[1:2] == [JOB] else [])
            return len(jobs) > 1

        assert until(second_run, 60)
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "It was interrupted before all was tried." in " ".join(out.split())
    assert not [pid for pid in jobs if not gone(pid)]


class Laboratory:
    """Makes real runs, as a session does, without a budget that could end."""

    budget_s = 0.0

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, change: Change, name: str, *, slow_start: bool = False) -> SeenRun:
        return self._runner.run(change, StepWindow(2, 5, 60, 60))

    def left_s(self) -> float:
        return 3600.0

    def run_s(self) -> float:
        return 1.0


@pytest.mark.alone
def test_what_is_planted_is_found_and_cured(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """All objects are looked through after each step, of torch's as well: that is most of the job's time.

    With a thread alone: a cured step takes 0.5 ms, and a hundred times as long wherever one thread waits for another
    that has no core.
    """
    monkeypatch.setattr(thresholds, "ROUNDS", 3.0)
    breakdown = (CauseShare(GARBAGE_COLLECTION, 0.9),)
    diagnosis = Diagnosis("", Verdict(None, None, 0, 0, 1, None, "", ""), breakdown, ())
    collect = {"kind": "collect", "file": JOB, "line": 1}
    treatments = {one.id: one for one in choose(Situation(diagnosis, [collect], {}))}
    found = arms(Found(), treatments["gc.collect() rarely"])
    search(found, Laboratory(runner(workplace, "--objects", 100, "--threads", 1)))
    assert found.arms[0].outcome is Outcome.FASTER
    assert found.best is not None
    assert found.best.training is Training.IDENTICAL
    assert found.best.measured is not None
    assert found.best.measured.low is not None
    assert found.best.measured.low > 1.5
