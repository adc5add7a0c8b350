"""The history of a job for a terminal: each kind of thing that happens in a line, and how it went before."""

import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from perfdoctor.reports import history_console
from perfdoctor.reports.history_lines import line
from perfdoctor.reports.language import language
from perfdoctor.results.history import Appeared, Beat, Happened, Incident, LongStep, Presence, Window

SINCE = 1_800_000_000.0
CAUSE = "io.storage_read"
VALUES = {
    Happened.SLOWER: {"before_s": 0.1, "after_s": 0.15},
    Happened.FASTER: {"before_s": 0.15, "after_s": 0.1},
    Happened.DIP: {"before_s": 0.1, "after_s": 0.15},
    Happened.RECURRING: {"count": 8.0, "longer_s": 12.0, "share": 0.02, "every_s": 600.0, "every_steps": 6000.0},
    Happened.DRIFT: {"before_s": 0.1, "after_s": 0.12, "page_cache_bytes_ratio": 0.4},
    Happened.MEMORY: {"before_bytes": 4e9, "after_bytes": 6e9, "per_s": 3e5, "exhausted_in_s": 30_000.0},
    Happened.NO_STEPS: {"ordinary_s": 0.1},
    Happened.CAUSE: {"before": 0.1, "after": 0.5},
    Happened.DIPS: {
        "count": 8.0,
        "longer_s": 27.0,
        "lasted_s": 300.0,
        "share": 0.02,
        "every_s": 3e3,
        "by_the_clock": 0.0,
    },
    Happened.RESTARTS: {"count": 9.0, "longer_s": 90.0, "share": 0.15, "every_s": 600.0, "by_the_clock": 0.0},
}
SAYS = {
    Happened.SLOWER: "50% slower: a step takes 150 ms instead of 100 ms. What takes more: reading from storage",
    Happened.FASTER: "faster: a step takes 100 ms instead of 150 ms, 33% less. What takes less: reading from storage",
    Happened.DIP: "for 60 s 50% slower",
    Happened.RECURRING: "8 steps took 12 s longer than the others, 2% of the time: one of 6,000 steps, about every",
    Happened.DRIFT: "slowly 20% slower: a step takes 120 ms instead of 100 ms then; meanwhile page cache -60%",
    Happened.MEMORY: "6 GB instead of 4 GB, 1.08 GB more each hour; none will be left in 8 h 20 min",
    Happened.NO_STEPS: "no step was made for 60 s, where one usually takes 100 ms",
    Happened.CAUSE: "reading from storage takes 50% of the time instead of 10%",
    Happened.DIPS: "for a while, 8 times: 5 min 0 s each, of which 27 s are lost, 2% of the time: about every 50 min",
    Happened.RESTARTS: "started again 9 times and did not train for 90 s each, 15% of the time: about every 10 min 0 s",
}


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def incident(what: Happened) -> Incident:
    return Incident(1, what, SINCE, SINCE + 60, VALUES[what], CAUSE, ("window-000001.x", "window-000002.x"))


@pytest.mark.parametrize("what", Happened)
def test_each_kind_is_a_line_with_its_date(what: Happened) -> None:
    said = line(incident(what))
    assert said.startswith("2027-01-15 08:00:00  ")
    assert SAYS[what] in said
    with language("zh"):
        assert line(incident(what)) != said


@pytest.mark.parametrize("what", Appeared)
def test_what_becomes_of_the_job_is_a_line(what: Appeared) -> None:
    said = line(Presence(SINCE, what, 77, "python train.py \x1b[31m", "Only root may count calls."))
    assert said.startswith("2027-01-15 08:00:00  ")
    assert "\x1b" not in said


def test_of_a_job_that_is_stuck_a_line_says_who_holds_it_up() -> None:
    summary = "This job is stuck: rank 3 is at a breakpoint, at train.py:60 fill."
    silent = Incident(1, Happened.NO_STEPS, SINCE, None, {"ordinary_s": 0.1}, stuck="debugger", summary=summary)
    why = f": a debugger holds a process. {summary}"
    assert line(silent).endswith(f"no step is made, where one usually takes 100 ms{why}")
    assert line(replace(silent, values={})).endswith(f"the job does not move{why}")
    assert line(replace(silent, values={}, until=SINCE + 60)).endswith(f"the job did not move for 60 s{why}")
    with language("zh"):
        assert line(silent).endswith(summary)


def test_rhythms_of_the_clock_and_none() -> None:
    by_the_clock = {"count": 5.0, "longer_s": 3.0, "share": 0.01, "every_s": 900.0}
    assert "every 15 min 0 s by the clock" in line(Incident(1, Happened.RECURRING, SINCE, values=by_the_clock))
    none = {"count": 5.0, "longer_s": 3.0, "share": 0.01}
    assert "they keep no rhythm" in line(Incident(1, Happened.RECURRING, SINCE, values=none))


def shown(*lines: Beat | Window | Incident | Presence) -> str:
    return history_console.render(lines, width=160, color=False, encoding="utf-8")


def test_how_it_went_is_told_period_by_period() -> None:
    beats = [
        Beat(SINCE + 30 * number, 30.0, 300, 33.0, (LongStep(SINCE, 3.0, 1),), {"job_memory_bytes": 4e9})
        for number in range(60)
    ]
    text = shown(*beats, Window(SINCE + 700, 10.0, "interval", CAUSE, 0.6, 0.9, {CAUSE: 0.6}, cost_s=1.5))
    assert "From 2027-01-15 08:00:00 to 2027-01-15 08:30:00" in text
    rows = [row for row in text.splitlines() if "6,000" in row]
    assert len(rows) == 3
    assert "100 ms" in rows[0]
    assert "10%" in rows[0]
    assert "not seen" in rows[0]
    assert "60% reading from storage" in rows[1]
    assert "Nothing that exceeds the noise." in text


def test_a_period_in_which_the_job_was_stuck_has_no_shares() -> None:
    moved = Window(SINCE, 10.0, "interval", CAUSE, 0.6, 0.9, {CAUSE: 0.6})
    stuck = Window(SINCE + 300, 10.0, "interval", summary="It is stuck.", stuck="debugger")
    assert "60% reading from storage" in shown(moved, stuck)
    silent = Incident(1, Happened.NO_STEPS, SINCE, stuck="debugger", recordings=("window-000007.x",))
    text = shown(stuck, silent)
    assert "a debugger holds a process" in text.split("What happened")[0]
    assert "perfdoctor report window-000007.x" in text


def test_an_incident_is_shown_as_it_was_last_known() -> None:
    first = Incident(1, Happened.SLOWER, SINCE, values={"before_s": 0.1, "after_s": 0.2})
    text = shown(Presence(SINCE - 9, Appeared.FOUND, 7, "python train.py"), first, incident(Happened.SLOWER))
    assert text.count("slower") == 1
    assert SAYS[Happened.SLOWER] in " ".join(text.split())
    assert "perfdoctor compare window-000001.x window-000002.x" in text


def test_of_a_job_whose_steps_are_not_counted_no_pace_is_told() -> None:
    text = shown(*(Beat(SINCE + 30 * number, 30.0) for number in range(4)))
    assert "0 s" not in text.split("How it went")[1]
    assert "not seen" in text
