"""The list of training jobs as people see it, and the choice among them where nobody can be asked."""

import io
from dataclasses import replace

import pytest

from perfdoctor.capture.jobs import TrainingJob, TrainingJobs
from perfdoctor.commands.job_list import choose, listing, none_found, shortened, unread
from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes import Refusal
from perfdoctor.reports.language import language
from tests.builders.phrases import english_runs

JOB = TrainingJob(
    (41, 42), (40,), (4, 5), 8, ("4711.0", "4711", "10.0.0.1:29500"),
    4, "alice", "/opt/conda/bin/python /home/alice/project/src/train.py --lr 0.1",
    7385.4, 3.27, 6 << 30, ("gpu:0", "gpu:1"), 12.5,
)  # fmt: skip
NOTEBOOK = replace(JOB, trainers=(77,), cores=0.004, memory_bytes=None, gpus=None, steps_per_s=None, workers=0)
CLOSED = Refusal("Process 9 belongs to root (uid 0); we are alice (uid 1000).", 'sudo "$(which perfdoctor)" ps')


def found(*jobs: TrainingJob, unread: int = 0) -> TrainingJobs:
    return TrainingJobs(jobs, unread, CLOSED if unread else None)


def test_what_is_known_is_listed_and_what_is_not_is_a_dash() -> None:
    heading, first, second = (line.split() for line in listing([JOB, NOTEBOOK]).splitlines())
    assert heading == ["PID", "USER", "RANKS", "WORKERS", "GPUS", "AGE", "CPU", "MEMORY", "STEPS/S", "COMMAND"]
    assert first[:6] == ["41", "alice", "2", "4", "0", "1"]
    assert " ".join(first[6:]) == "2 h 3 min 3.3 6.44 GB 12.5 python …/src/train.py --lr 0.1"
    assert second[4] == "—"
    assert " ".join(second[8:12]) == "min idle — —"


def test_it_is_in_chinese_and_in_columns() -> None:
    from rich.cells import cell_len

    with language("zh"):
        heading, *rows = listing([JOB, NOTEBOOK]).splitlines()
        said = [heading, unread(found(JOB, unread=2)), none_found(found(unread=2))]
    assert english_runs("\n".join(said)) == []
    assert (
        len({cell_len(line[: line.rindex(word)]) for line, word in zip(rows, ("python", "python"), strict=True)}) == 1
    )
    assert cell_len(heading[: heading.index("命令")]) == cell_len(rows[0][: rows[0].index("python")])
    with language("zh"), pytest.raises(PerfDoctorError, match="No training job runs on this host"):
        choose(found())


def test_a_job_without_gpus_has_none() -> None:
    assert " none " in listing([replace(JOB, gpus=())])


def test_a_line_ends_where_the_terminal_does() -> None:
    wide = replace(JOB, command="python train.py " + "--option " * 100)
    lines = listing([wide], columns=90).splitlines()
    assert max(map(len, lines)) == 90
    assert lines[1].endswith("…")


def test_a_command_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in listing([replace(JOB, command="python \x1b[2J\n x")])


def test_commands_are_short_and_keep_what_tells_them_apart() -> None:
    assert shortened("/usr/bin/python3 train.py data/a.yaml") == "python3 train.py data/a.yaml"
    assert shortened("torchrun /a/b/c/train.py") == "torchrun …/c/train.py"


def test_what_may_not_be_read_is_counted_with_the_reason_and_the_next_move() -> None:
    said = unread(found(JOB, unread=12))
    assert said.startswith("12 processes may not be read")
    assert said.endswith("Process 9 belongs to root (uid 0); we are alice (uid 1000).")
    hidden = TrainingJobs((), 0, Refusal("They are hidden.", "mount it otherwise"))
    assert unread(hidden) == "They are hidden."
    assert unread(found(JOB)) == ""
    assert none_found(found()) == "No training job runs on this host: no process has PyTorch loaded."
    assert "no process that may be read has" in none_found(found(unread=1))


def test_the_only_job_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert choose(found(JOB)).pid == 41
    assert capsys.readouterr().err == "perfdoctor: attaching to 41: python …/src/train.py --lr 0.1\n"
    assert choose(found(NOTEBOOK)).pid == 77


def test_the_only_one_at_work_is_taken_before_those_that_idle() -> None:
    assert choose(found(NOTEBOOK, JOB, NOTEBOOK)).pid == 41


def test_none_is_one_sentence_and_the_next_move() -> None:
    with pytest.raises(PerfDoctorError, match="No training job runs on this host") as caught:
        choose(found())
    assert caught.value.hint == "Start one, or name a process: perfdoctor attach PID"
    with pytest.raises(PerfDoctorError, match="12 processes may not be read") as caught:
        choose(found(unread=12))
    assert caught.value.hint.endswith(CLOSED.enable)


OTHER = replace(JOB, trainers=(51,), names=("4711.1", "4711", "10.0.0.1:29600"))


def test_several_are_named_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n"))
    with pytest.raises(PerfDoctorError) as caught:
        choose(found(JOB, OTHER))
    assert str(caught.value).startswith(
        "2 training jobs run on this host: 4711.0: 41 (python …/src/train.py --lr 0.1); 4711.1: 51 ("
    )
    assert caught.value.hint == "Name one: perfdoctor attach PID"


def test_several_are_told_apart_by_names_that_all_hosts_know() -> None:
    with pytest.raises(PerfDoctorError) as caught:
        choose(found(JOB, OTHER), alone=True)
    assert caught.value.hint == "Name one, as all hosts know it: perfdoctor attach --job 4711.0"
    with pytest.raises(PerfDoctorError) as caught:
        choose(found(replace(JOB, names=()), replace(OTHER, names=())), alone=True)
    assert caught.value.hint == "Name a process of it, on each host: perfdoctor attach PID"


@pytest.mark.parametrize("name", ["4711.1", "10.0.0.1:29600"])
def test_a_job_is_chosen_by_any_of_its_names(name: str) -> None:
    assert choose(found(JOB, OTHER), name, alone=True).pid == 51


def test_a_name_that_several_have_or_none_is_one_sentence() -> None:
    with pytest.raises(PerfDoctorError, match="2 training jobs run on this host"):
        choose(found(JOB, OTHER), "4711", alone=True)
    with pytest.raises(PerfDoctorError, match=r"called night; there are 4711\.0: 41"):
        choose(found(JOB, OTHER), "night", alone=True)


def test_the_slurm_job_that_perfdoctor_was_started_in_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = replace(OTHER, names=("4712.0", "4712"))
    monkeypatch.setenv("SLURM_JOB_ID", "4712")
    assert choose(found(JOB, theirs), alone=True).pid == 51
    monkeypatch.setenv("SLURM_JOB_ID", "4713")
    with pytest.raises(PerfDoctorError, match="2 training jobs"):
        choose(found(JOB, theirs), alone=True)
