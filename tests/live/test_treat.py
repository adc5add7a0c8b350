"""`perfdoctor treat` on real jobs: what a run sees, what is left of it, and what is said where a job is no use."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import record
from perfdoctor.causes import GARBAGE_COLLECTION
from perfdoctor.diagnosis import CauseShare, Diagnosis, Verdict
from perfdoctor.knowledge import thresholds
from perfdoctor.probes import all_probes
from perfdoctor.probes.readers.procfs import descendants_of_self
from perfdoctor.recording.reader import Recording
from perfdoctor.reports.wording import worded
from perfdoctor.results.treatment import Outcome, Training
from perfdoctor.treat.run import RunChange, Runner, SeenRun, StepWindow
from perfdoctor.treat.search import Found, search
from perfdoctor.treat.situation import Situation
from perfdoctor.treat.staging import pieces, waited_files
from perfdoctor.treat.treatments import choose
from perfdoctor.treat.workplace import Workplace
from tests.builders.trials import arms
from tests.files import TARGETS
from tests.processes.attaching import PERFDOCTOR, gone, job, needs_root, needs_two_cores, perfdoctor, refused, until

JOB, READING, RANKS = "treated_training.py", "treated_reading.py", "treated_accumulating.py"
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
    runs = [runner(workplace, "--orphan", orphan, "--save", "model.pt").run(RunChange(), WINDOW)]
    assert until(lambda: not psutil.pid_exists(int(orphan.read_text())))
    assert not [one for one in psutil.Process().children(recursive=True) if JOB in " ".join(one.cmdline())]
    runs.append(runner(workplace).run(RunChange(), WINDOW))
    assert [worded(run.failure) for run in runs] == ["", ""]
    assert all(len(run.ends_ns) >= 26 and run.pace() for run in runs)
    assert runs[0].losses[:20] == runs[1].losses[:20]
    assert runs[0].memory_bytes > 50e6
    assert runs[0].status is None
    assert sorted(file.name for file in project.iterdir()) == [JOB]


def test_a_daemon_of_the_job_is_none_of_ours_while_it_runs(workplace: Workplace, tmp_path: Path) -> None:
    """Else the cores that it takes would count as perfdoctor's, and the job that waits for them as sound."""
    orphan = tmp_path / "orphan"
    with runner(workplace, "--orphan", orphan).live(RunChange()):
        assert until(lambda: orphan.exists() and orphan.read_text())
        pid = int(orphan.read_text())
        assert pid not in descendants_of_self(Path("/"), frozenset())
    assert until(lambda: not psutil.pid_exists(pid))


def test_a_change_with_which_the_job_crashes_says_its_last_word(workplace: Workplace) -> None:
    change = RunChange({"loader": {"num_workers": 1}})
    run = runner(workplace, "--crash-with", "num_workers").run(change, WINDOW)
    assert worded(run.failure) == "The job ended with status 1: RuntimeError: this job wants no such thing"


def test_a_job_that_ends_by_itself_is_of_use_if_it_made_enough_steps(workplace: Workplace) -> None:
    assert not runner(workplace, "--steps", 16).run(RunChange(), WINDOW).failure
    assert "Only 8 steps" in worded(runner(workplace, "--steps", 8).run(RunChange(), WINDOW).failure)


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

    def run(self, change: RunChange, name: str, *, slow_start: bool = False) -> SeenRun:
        return self._runner.run(change, StepWindow(2, 5, 60, 60))

    def left_s(self) -> float:
        return 3600.0

    def run_s(self) -> float:
        return 1.0


@pytest.fixture
def data(tmp_path: Path, project: Path) -> Path:
    """A folder of data outside of the working folder, and the job that reads it."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in "ab":
        with (folder / f"{name}.bin").open("wb") as file:
            file.write(os.urandom(2**20))
            os.fsync(file.fileno())
    (project / READING).write_text((TARGETS / READING).read_text())
    return folder


def soon() -> float:
    return time.monotonic() + 60


@needs_root
def test_a_run_reads_copies_in_memory_and_the_next_one_does_not(
    workplace: Workplace, data: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    reading = Runner([sys.executable, READING, "../data", "--told", str(told)], workplace)
    assert workplace.stage([str(data)], 2**30, soon()) == ""
    run = reading.run(RunChange({"staged": [str(data)]}), WINDOW)
    assert (worded(run.failure), run.applied()) == ("", {"staged"})
    seen = json.loads(told.read_text())
    assert (seen["in memory"], seen["path"], seen["refused"]) == (True, str(data / "a.bin"), "Read-only file system")
    as_it_is = reading.run(RunChange(), WINDOW)
    assert json.loads(told.read_text()) == {"in memory": False, "path": str(data / "a.bin"), "refused": ""}
    assert not as_it_is.applied()
    assert run.losses[:20] == as_it_is.losses[:20]


@needs_root
def test_what_the_working_folder_holds_is_staged_too(workplace: Workplace, data: Path, project: Path) -> None:
    own = project / "own"
    shutil.copytree(data, own)
    told = project.parent / "told"
    reading = Runner([sys.executable, READING, "own", "--told", str(told)], workplace)
    assert workplace.stage([str(own)], 2**30, soon()) == ""
    assert not reading.run(RunChange({"staged": [str(own)]}), WINDOW).failure
    seen = json.loads(told.read_text())
    assert seen["in memory"]
    assert seen["path"].startswith(str(workplace.scratch))
    assert "working folder itself" in worded(workplace.stage([str(project)], 2**30, soon()))


def test_the_files_that_a_job_waits_for_are_known(project: Path, data: Path, tmp_path: Path) -> None:
    recorded = tmp_path / "job.perfdoctor"
    with job(sys.executable, str(project / READING), str(data)) as started:
        record(Job(started.pid), recorded, 4.0, all_probes())
        with Recording.open(recorded) as recording:
            waits = waited_files(recording, started.pid)
    # Which of the two is met how often is chance.
    assert {data} == {Path(file).parent for file in pieces(waits)}


def test_accumulated_gradients_are_exchanged_in_the_last_pass_only(workplace: Workplace, project: Path) -> None:
    """In steps with fewer passes as well: the job ends if its ranks come to differ."""
    (project / RANKS).write_text((TARGETS / RANKS).read_text())
    ranks = Runner(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", RANKS], workplace
    )
    as_it_is = ranks.run(RunChange(), WINDOW)
    steps = [fact for fact in as_it_is.facts if fact["kind"] == "accumulation"]
    assert {(fact["passes"], fact["exchanged"], fact["models"]) for fact in steps} == {(4, 4, 1), (2, 2, 1)}
    less = ranks.run(RunChange({"no_sync": 4}), WINDOW)
    assert (worded(less.failure), less.applied()) == ("", {"no_sync"})
    first = min(len(as_it_is.losses), len(less.losses))
    assert first > 60
    assert less.losses[:first] == pytest.approx(as_it_is.losses[:first], rel=1e-4)


@needs_two_cores
def test_trainer_and_workers_run_on_cores_of_their_own(workplace: Workplace, tmp_path: Path) -> None:
    own, others = sorted(os.sched_getaffinity(0))[:2]
    change = RunChange({"loader": {"num_workers": 1}, "affinity": [[[own], [others]]]})
    told = tmp_path / "worker"
    run = runner(workplace, "--tell-cores", told).run(change, WINDOW)
    assert (worded(run.failure), run.applied()) == ("", {"loader", "affinity"})
    assert json.loads(told.read_text())["cores"] == [others]


def test_workers_come_from_a_fork_server(workplace: Workplace, tmp_path: Path) -> None:
    loader = {"num_workers": 1, "multiprocessing_context": "forkserver"}
    told = tmp_path / "worker"
    training = runner(workplace, "--tell-cores", told)
    run = training.run(RunChange({"loader": loader, "preload": ["__main__", "torch"]}), WINDOW)
    assert (worded(run.failure), run.applied()) == ("", {"loader", "preload"})
    assert json.loads(told.read_text())["parent has torch"]


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
