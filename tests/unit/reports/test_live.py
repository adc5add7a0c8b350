"""What a live view looks like, whatever the terminal's size, and what keys do."""

from dataclasses import replace
from functools import reduce
from itertools import pairwise

import pytest

from perfdoctor.messages import say
from perfdoctor.reports.language import language
from perfdoctor.reports.live import MIN_HEIGHT, MIN_WIDTH, Drawing
from perfdoctor.reports.live_keys import SORTS, Selection, moved_on, press, selected
from perfdoctor.reports.wording import live_words
from perfdoctor.results.view import ThreadActivity, View
from tests.builders import diagnoses, views
from tests.builders.phrases import english_runs

JOB = views.view(diagnosis=diagnoses.input_bound())


def drawn(view: View | None, choice: Selection | None = None, width: int = 100, height: int = 40) -> list[str]:
    return [line.plain for line in Drawing().lines(view, choice or Selection(), width, height)]


def pressed(*keys: str, view: View | None = JOB, choice: Selection | None = None) -> Selection:
    return reduce(lambda before, key: press(before, key, view), keys, choice or Selection())


def line(lines: list[str], beginning: str) -> str:
    return next(one for one in lines if one.startswith(beginning))


def test_the_first_page_has_the_verdict_the_machine_and_the_processes() -> None:
    lines = drawn(JOB, width=120)
    assert lines[0] == "perfdoctor: job of process 100 on node7, watched for 42 s"
    assert (
        lines[1] == "CPU bottleneck: preparing the input on the CPU, 62% of the time, up to 2.3 times as fast if fixed"
    )
    assert "about seconds 4 to 34" in lines[2]
    assert line(lines, "[||||||||||||") == "[||||||||||||        ]  62% Preparing the input on the CPU"
    assert "job 2.50 of 4.00, others 0.40, perfdoctor 0.04; 1.2 threads wait for a core" in line(lines, "cores")
    assert "7.0G of 16G in use" in line(lines, "memory")
    assert "busy 45%" in line(lines, "vda")
    assert line(lines, "file").endswith("0.8 threads in read, 0.6 of them blocked: /data/part-1")
    assert line(lines, "    100 trainer").split()[:4] == ["100", "trainer", "running", "90"]
    assert line(lines, "    200 worker")
    assert lines[-1].endswith("q quit")


def test_what_is_missing_for_a_surer_verdict_is_said() -> None:
    lines = drawn(replace(JOB, diagnosis=None, missing=(say("live.watched_briefly", seconds=6.0, enough=15.0),)))
    assert lines[1:3] == ["No diagnosis yet.", "Watched for 6 s; a verdict takes 15 s."]


def test_what_was_not_measured_is_no_zero() -> None:
    unread = replace(views.process(300, cores=None), memory=None, read=None, write=None)
    assert line(drawn(views.view(unread)), "    300 trainer").split()[3:9] == ["-", "5", "0", "-", "-", "-"]


@pytest.mark.parametrize("width", [MIN_WIDTH, 80, 100, 160, 240])
@pytest.mark.parametrize("height", [MIN_HEIGHT, 24, 60])
@pytest.mark.parametrize("page", ["job", "process", "findings", "help"])
def test_it_fits_into_the_terminal(width: int, height: int, page: str) -> None:
    lines = drawn(replace(JOB, gpus=(views.gpu(),)), Selection(page=page, pid=100), width, height)
    assert len(lines) == height
    assert max(map(len, lines)) < width


@pytest.mark.parametrize("width", [MIN_WIDTH, 110, 200])
@pytest.mark.parametrize("page", ["job", "process", "findings", "help"])
def test_it_fits_and_is_in_columns_in_chinese_too(width: int, page: str) -> None:
    from rich.cells import cell_len

    with language("zh"):
        lines = drawn(replace(JOB, gpus=(views.gpu(),)), Selection(page=page, pid=100), width, 40)
    assert max(map(cell_len, lines)) < width
    if page in ("job", "process"):  # names of keys are English, and so is what this diagnosis says
        assert english_runs("\n".join(lines[:-1])) == []
    for heading, below in pairwise(lines):
        if "CPU%" in heading and page != "help":
            ends = [cell_len(line[: line.index(found)] + found) for line, found in ((heading, "CPU%"), (below, " 90"))]
            assert ends[0] == ends[1]


def test_a_terminal_that_is_too_small_says_so_in_one_line() -> None:
    assert drawn(JOB, width=MIN_WIDTH - 1) == ["This terminal is too small: make it at least 60 by 16, or press q."]
    assert len(drawn(JOB, height=MIN_HEIGHT - 1)) == 1


def test_wider_terminals_show_more_columns() -> None:
    headings = [next(one for one in drawn(JOB, width=width) if "PID" in one).split() for width in (60, 100, 160)]
    assert "CPU%" in headings[0]
    assert "READ/s" in headings[1]
    assert "READ/s" not in headings[0]
    assert {"SHR", "AGE", "THR"} <= set(headings[2])


@pytest.mark.parametrize("code", ["en", "zh"])
@pytest.mark.parametrize("width", [MIN_WIDTH, 80, 110])
@pytest.mark.parametrize("view", [JOB, views.finished(JOB)], ids=["live", "finished"])
def test_help_and_quit_stay_where_not_all_keys_have_room(view: View, width: int, code: str) -> None:
    with language(code):
        *_, keys = drawn(view, width=width)
        all_keys = live_words().BAR if view.live else live_words().REPLAY_BAR
    shown = keys.split("  ")
    assert tuple(shown) == all_keys[-len(shown) :]
    assert [one[0] for one in shown[-2:]] == ["?", "q"]


@pytest.mark.parametrize(
    ("latency_s", "said"), [(None, "- a"), (0.0, "<1 ms a"), (2.4e-5, "24 µs a"), (0.012, "12 ms a")]
)
def test_what_a_read_takes_is_no_0_where_the_kernel_has_counted_reads(latency_s: float | None, said: str) -> None:
    device = replace(JOB.devices[0], latency_s=latency_s)
    assert f"requests/s, {said} read" in line(drawn(replace(JOB, devices=(device,)), width=120), "vda")


def test_a_gpu_has_its_lines_and_columns() -> None:
    on_gpu = replace(views.process(100), gpus=("gpu:0",), gpu_memory=30 * views.GB)
    lines = drawn(replace(views.view(on_gpu), gpus=(views.gpu(),)), width=160)
    assert "busy 72%, SM 40%, tensor 20%, DRAM -, memory 30G of 80G" in line(lines, "gpu:0")
    assert any("410 of 700 W, 61 C, 1700 of 1980 MHz" in one for one in lines)
    assert "GPU-MEM" in next(one for one in lines if "PID" in one)


def test_steps_per_second_come_where_the_job_marks_them() -> None:
    assert "STEPS/s" not in "".join(drawn(JOB))
    assert "12.5" not in "".join(drawn(JOB))
    marked = views.view(replace(views.process(100), steps=3.25))
    assert "STEPS/s" in "".join(drawn(marked))
    assert "3.2" in line(drawn(marked), "    100 trainer")


def test_names_of_strangers_cannot_steer_the_terminal() -> None:
    evil = views.process(100, command="python \x1b]0;x\x07 \u202etrain.py\n\x1b[2J")
    evil = replace(evil, main=replace(evil.main, target="file:/data/\x1b[31m", call="read"))
    job = replace(views.view(evil, diagnosis=diagnoses.hostile()), host_name="\x1b[2Jhost")
    for page in ("job", "process", "findings"):
        text = "\n".join(drawn(job, Selection(page=page, pid=100)))
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(text)


def test_a_job_of_many_processes_shows_those_around_the_chosen_one() -> None:
    many = views.view(*(views.process(1000 + number, "worker") for number in range(50)))
    choice = pressed("page down", "page down", "down", view=many)
    chosen = selected(choice, many)
    assert chosen is not None
    assert chosen.pid == 1021
    lines = drawn(many, choice, height=24)
    assert any(one.startswith("   1021") for one in lines)
    assert not any(one.startswith("   1000") for one in lines)


def test_processes_are_sorted_and_filtered() -> None:
    first, second = views.process(100, cores=0.1), views.process(200, "worker", cores=0.8)
    job = views.view(first, second)
    assert selected(Selection(), job) == first
    assert selected(pressed("P", view=job), job) == second
    typed = pressed("/", *"work", "enter", view=job)
    assert (typed.filter, typed.typing) == ("work", False)
    assert selected(typed, job) == second
    assert "filter: work (1 of 2 processes)" in drawn(job, typed)
    assert pressed("escape", view=job, choice=typed).filter == ""
    assert pressed("/", "q", "backspace", "escape", view=job) == Selection()


def test_sorting_goes_through_all_columns_and_back() -> None:
    assert pressed(*"s" * len(SORTS)) == Selection()
    assert pressed(*"sS") == Selection()


def test_a_process_is_opened_and_closed() -> None:
    job = views.view(views.process(175602), diagnosis=diagnoses.straggler())
    choice = pressed("enter", view=job)
    assert choice.page == "process"
    lines = drawn(job, choice)
    assert "trainer, process 175602: python train.py" in lines
    assert "Threads, busiest first" in lines
    assert line(lines, " 175603 thread 175603").split()[3:] == ["blocked", "10", "5", "0", "read", "/data/part-1"]
    assert pressed("escape", choice=choice).page == "job"
    gone = views.view(views.process(1))
    assert "Process 175602 has ended. Escape goes back." in drawn(gone, choice)


def test_a_trainer_has_its_own_account() -> None:
    diagnosis = diagnoses.straggler()
    rank = next(one for one in diagnosis.ranks if one["pid"])
    job = views.view(views.process(rank["pid"]), diagnosis=diagnosis)
    assert "Where its time goes" in drawn(job, pressed("enter", view=job))


def test_the_diagnosis_so_far_is_a_page_of_its_own() -> None:
    lines = drawn(JOB, pressed("v"))
    assert "Findings" in lines
    assert "Not examined" in lines
    assert pressed("v", "v").page == "job"


def test_a_page_that_is_longer_than_the_screen_is_scrolled() -> None:
    drawing = Drawing()
    first = [one.plain for one in drawing.lines(JOB, pressed("v"), 80, 16)]
    assert drawing.most_scroll > 0
    second = [one.plain for one in drawing.lines(JOB, pressed("v", "down", "down"), 80, 16)]
    assert second[1:10] == first[3:12]
    end = [one.plain for one in drawing.lines(JOB, pressed("v", *["page down"] * 50), 80, 16)]
    assert end[-2].strip()
    assert pressed("v", "down", "escape", "v").scroll == 0


@pytest.mark.parametrize("keys", [("q",), ("ctrl-c",), ("/", "ctrl-c"), ("enter", "q"), ("?", "q")])
def test_it_can_be_left_from_everywhere(keys: tuple[str, ...]) -> None:
    assert pressed(*keys).quit


def test_before_there_is_a_view_it_can_be_left_too() -> None:
    assert pressed("enter", "down", " ", "q", view=None).quit
    assert drawn(None) == ["No diagnosis yet."]


def test_a_finished_recording_is_gone_through_and_played() -> None:
    job = views.finished(JOB)
    assert pressed("left", "left", view=job).at_s == 40.0
    assert pressed("left", "right", view=job).at_s is None
    assert pressed("home", "left", view=job).at_s == 0.0
    playing = pressed(" ", view=job)
    assert (playing.at_s, playing.playing) == (0.0, True)
    assert moved_on(playing, job, 0.5).at_s == 0.5
    assert moved_on(playing, job, 60.0) == Selection()
    assert pressed(" ", view=job, choice=playing).playing is False
    assert "recording ended, 42 s of 42 s" in drawn(job)[0]


@pytest.mark.parametrize("width", [MIN_WIDTH, 80, 110])
def test_what_is_shown_of_a_job_has_room_whatever_its_host_is_called(width: int) -> None:
    job = replace(views.finished(JOB), host_name="a" * 200)
    for shown, said in (
        (drawn(job, width=width), "  recording ended, 42 s of 42 s"),
        (drawn(replace(JOB, host_name="a" * 200, silent_s=12.0), width=width), "recorder is stopped or gone"),
    ):
        assert shown[0].startswith("perfdoctor: job of")
        assert said in shown[0] or width == MIN_WIDTH


def test_one_that_is_being_written_is_not_played() -> None:
    assert pressed(" ", "left", "home") == Selection()


def test_a_recorder_that_is_gone_is_noticed() -> None:
    assert "nothing new for 12 s" in drawn(replace(JOB, silent_s=12.0))[0]


def test_a_thread_without_a_core_is_told_from_one_that_runs() -> None:
    crowded = views.process(100)
    crowded = replace(crowded, main=replace(crowded.main, state=ThreadActivity.DELAYED))
    assert " no core " in line(drawn(views.view(crowded)), "    100 trainer")
