"""Reports of treatments: what was measured and only that, in all outputs, and safe whatever the job's texts hold."""

import json
from dataclasses import replace
from io import StringIO

import pytest

from perfdoctor.diagnosis import advise
from perfdoctor.messages import say
from perfdoctor.reports import outputs, treated_console, treated_html, treated_json
from perfdoctor.results.treatment import Outcome, Speedup, Training, Treated
from tests.builders.diagnoses import ATTACK, TERMINAL_ATTACK, input_bound
from tests.builders.trials import a_control, a_trial, treated
from tests.unit.reports.test_html import Page


def console(what: Treated) -> str:
    return treated_console.render(what, width=100, color=False, encoding="utf-8")


def nothing_helped() -> Treated:
    slow = a_trial("slow", outcome=Outcome.SLOWER, measured=Speedup(0.8, 0.7, 0.9, 2, 4))
    return treated(trials=(slow,), best=None, patch="")


def test_the_first_line_says_what_was_measured() -> None:
    text = console(treated())
    assert text.startswith("1.84x faster, as measured: 2 loader workers instead of 0\n")
    assert "Between 1.71x and 1.98x with 97% confidence" in text
    assert "num_workers=2, persistent_workers=True" in text


def test_a_gain_that_was_only_predicted_is_never_called_measured() -> None:
    undone = a_trial(outcome=Outcome.NOT_TRIED, measured=None, training=None, detail=say("treat.no_time", needed=80.0))
    text = console(treated(trials=(undone,), best=None, control=None, patch=""))
    assert text.startswith("Nothing was tried\n")
    assert "1.7x" in text
    assert "1.84x" not in text


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Outcome.SLOWER, "Nothing that was tried makes this job faster"),
        (Outcome.SAME, "Nothing that was tried makes this job faster"),
        (Outcome.UNDECIDED, "No change is clearly faster"),
        (Outcome.FASTER, "1.84x faster when it was tried, but not confirmed: 2 loader workers instead of 0"),
    ],
)
def test_without_a_best_the_first_line_says_so(outcome: Outcome, line: str) -> None:
    assert console(treated(trials=(a_trial(outcome=outcome),), best=None)).startswith(line + "\n")


def test_a_bound_is_no_gain() -> None:
    bound = a_trial("cached batches", bound=True, advice=(advise("treat.cached_batches"),))
    text = console(treated(trials=(bound,), best=None))
    assert "nothing to keep" in " ".join(text.split())
    assert "faster" not in text.split("What was tried")[1].split("The job as it is")[0]


def test_why_a_trial_failed_is_said() -> None:
    failed = a_trial(outcome=Outcome.FAILED, measured=None, detail=say("treat.crashed", status=-9, said="Killed"))
    assert "ended by signal 9: Killed" in " ".join(console(treated(trials=(failed,))).split())


def test_json_has_all_of_it() -> None:
    told = json.loads(treated_json.render(treated()))
    assert told["schema"] == 1
    assert told["best"]["measured"] == {"speedup": 1.84, "low": 1.71, "high": 1.98, "runs": 3, "controls": 4}
    assert [trial["verdict"] for trial in told["trials"]] == ["faster", "slower"]
    assert told["trials"][0]["training"] == Training.WITHIN_NOISE.value
    assert told["diagnosis"]["verdict"]["cause"] == "cpu.input_preprocessing"
    assert json.loads(treated_json.render(nothing_helped()))["best"] is None


def test_the_page_has_the_trials_before_the_diagnosis() -> None:
    page = Page(treated_html.render(treated()))
    assert page.text.index("1.84x faster") < page.text.index("What was tried") < page.text.rindex("Findings")
    assert [tag for tag, _ in page.tags].count("h1") == 1
    assert not page.open
    assert "+<new>" in page.text  # of the patch, as text


def tried_inside() -> Treated:
    best = a_trial("threads=2", advice=(advise("treat.threads", threads=2, now=16),), training=Training.ROUNDED)
    frozen = a_trial("gc.freeze()", advice=(advise("treat.freeze"),), outcome=Outcome.NOT_TRIED, measured=None)
    control = replace(a_control(), deterministic=None)
    return treated(trials=(best,), best=best, patch="", control=control, inside=True, not_asked=(frozen,))


def test_what_was_tried_inside_stands_below_its_diagnosis_and_speaks_of_blocks() -> None:
    text = outputs.console_text(input_bound(), StringIO(), tried_inside())
    assert text.index("62% of the time") < text.index("1.84x faster, as measured: 2 compute threads instead of 16")
    assert text.count("CPU bottleneck") == text.count(outputs.console_text(input_bound(), StringIO()).splitlines()[0])
    words = " ".join(text.split())
    assert "by 3 blocks that were made for this alone" in words
    assert (
        'with treat="within noise" only, since results may be rounded differently: Garbage collection (GC) without'
        in words
    )
    assert "torch.set_num_threads(2)" in text
    assert " run" not in text.partition("1.84x")[2]
    assert "--minutes" not in text


def test_the_files_of_what_was_tried_inside_are_those_of_its_diagnosis_and_more() -> None:
    told = json.loads(outputs.rendered("json", input_bound(), tried_inside()))
    usual = json.loads(outputs.rendered("json", input_bound()))
    inside = told.pop("treated")
    assert told == usual
    assert (inside["best"]["id"], inside["inside"]) == ("threads=2", True)
    assert [trial["id"] for trial in inside["not_asked"]] == ["gc.freeze()"]
    page = Page(outputs.rendered("report", input_bound(), tried_inside()))
    assert "with treat=" in page.text
    assert not page.open


def test_nothing_of_the_job_s_becomes_markup_or_steers_a_terminal() -> None:
    words = say("treat.crashed", status=1, said=ATTACK + TERMINAL_ATTACK)
    trial = a_trial(ATTACK, outcome=Outcome.FAILED, measured=None, detail=words)
    patch = f"--- a/{ATTACK}\n+{TERMINAL_ATTACK}\n"
    attacked = replace(treated(input_bound()), trials=(trial,), patch=patch, saved_aside=(ATTACK, TERMINAL_ATTACK))
    page = Page(treated_html.render(attacked))
    assert [tag for tag, _ in page.tags if tag in ("script", "img")] == ["script"], "its own"
    assert "\x1b" not in treated_html.render(attacked)
    assert "\x1b" not in console(attacked)
    json.loads(treated_json.render(attacked))
