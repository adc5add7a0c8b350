"""What a diagnosis has of steps that were counted from outside: their lengths, and nothing of the account."""

import json
from pathlib import Path

import pytest

from perfdoctor.analysis.from_recording import examine
from perfdoctor.analysis.live_view import Examined, view_at
from perfdoctor.diagnosis import BACKWARD_PASSES, OPTIMIZER_STEPS, OUTSIDE, Diagnosis
from perfdoctor.recording.follow import Follower
from perfdoctor.recording.schema import BACKWARD_CALL, OPTIMIZER_CALL, CountedCall, Sample
from perfdoctor.reports import console, html
from perfdoctor.reports import json as report
from tests.builders import jobs

STEP_S = 0.25


def watched() -> list[Sample]:
    """A job that computes for 10 s."""
    return [*jobs.process(1), *jobs.thread(1, 1, "R", run=1.0)]


def counted(*what: str, long: int = 0) -> list[Sample]:
    """Calls in steps of 0.25 s; of each ``long`` of them one takes as long as four."""
    found: list[Sample] = []
    at, number = 0.1, 0
    while at < 9.9:
        number += 1
        found += [CountedCall(jobs.at(at) + place, 1, 1, one) for place, one in enumerate(what)]
        at += STEP_S * (4 if long and number % long == 0 else 1)
    return found


def diagnosed(*samples: Sample) -> Diagnosis:
    with jobs.recorded([*watched(), *samples]) as recording:
        return examine(recording)


def test_counted_steps_are_timed_and_the_account_stays_what_it_was() -> None:
    found, without = diagnosed(*counted(BACKWARD_CALL, OPTIMIZER_CALL)), diagnosed()
    assert found.steps["unit"] == OPTIMIZER_STEPS
    assert found.steps["median_s"] == pytest.approx(STEP_S)
    assert found.verdict.level == OUTSIDE
    assert (found.breakdown, found.verdict, found.findings) == (without.breakdown, without.verdict, without.findings)


def test_blocks_have_the_steps_and_the_causes_of_whole_seconds() -> None:
    blocks = diagnosed(*counted(BACKWARD_CALL, OPTIMIZER_CALL)).blocks
    assert [(block.seconds, block.steps) for block in blocks] == [(1.0, pytest.approx(4.0))] * len(blocks)
    assert len(blocks) >= 8
    assert all(sum(block.causes.values()) == pytest.approx(block.seconds, rel=0.1) for block in blocks)


def test_long_steps_have_their_period() -> None:
    (times,) = diagnosed(*counted(BACKWARD_CALL, OPTIMIZER_CALL, long=5)).activity.steps
    assert times.every == 5
    assert times.slowest.length_s == pytest.approx(4 * STEP_S)
    assert not times.passes


def test_reports_call_backward_passes_what_they_are() -> None:
    found = diagnosed(*counted(BACKWARD_CALL))
    assert found.steps["unit"] == BACKWARD_PASSES
    said = console.render(found, width=100, color=False)
    assert "Time per backward pass" in said
    assert "per step" not in said
    page = html.render(found)
    assert "Backward passes" in page
    assert "kernel probes" in page
    assert json.loads(report.render(found))["steps"]["unit"] == BACKWARD_PASSES


def test_the_live_view_counts_steps_and_no_passes(tmp_path: Path) -> None:
    for what, rate in (((BACKWARD_CALL, OPTIMIZER_CALL), pytest.approx(1 / STEP_S)), ((BACKWARD_CALL,), None)):
        path = jobs.write(tmp_path / f"{len(what)}", [*watched(), *counted(*what)])
        follower = Follower(path)
        follower.read_on()
        (process,) = view_at(follower, follower.newest_ns, Examined(), live=False).processes
        follower.close()
        assert process.steps == rate
