"""What a history keeps of a window's report."""

from dataclasses import replace

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.monitor.apart import condensed
from perfdoctor.reports.json import document
from perfdoctor.results.history import Window
from tests.builders.diagnoses import input_bound, stuck

SEEN = Window(1.0, 10.0, "interval")


def kept(diagnosis: Diagnosis) -> Window:
    report = document(diagnosis)
    return condensed({**report, "job": {**report["job"], "watched_seconds": 9.5}}, SEEN)


def test_of_a_job_that_trains_its_shares_are_kept() -> None:
    window = kept(input_bound())
    assert window.shares
    assert window.cause == "cpu.input_preprocessing"
    assert window.stuck == ""


def test_a_stuck_job_has_no_shares_but_what_it_sits_in() -> None:
    window = kept(replace(stuck(), breakdown=input_bound().breakdown))
    assert (dict(window.shares), window.cause, window.stuck) == ({}, None, "lock")
    assert "rank 1" in window.summary
