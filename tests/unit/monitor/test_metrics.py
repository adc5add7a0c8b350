"""Figures of a history for Prometheus: read on as it grows, and anew where it is begun anew."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from perfdoctor.exports.prometheus import render
from perfdoctor.monitor.history import History
from perfdoctor.monitor.metrics import HistoryMetrics
from perfdoctor.results.history import Appeared, Beat, Happened, Incident, LongStep, Presence, Window


def told(figures: HistoryMetrics) -> dict[tuple[str, str], float]:
    """Values by name and label, as a scraper reads them."""
    families = text_string_to_metric_families(render(figures.newest()).decode())
    return {(one.name, "".join(one.labels.values())): one.value for family in families for one in family.samples}


def test_figures_follow_the_history(tmp_path: Path) -> None:
    history, figures = History(tmp_path), HistoryMetrics(tmp_path / "history.jsonl")
    assert told(figures) == {}
    history.add(Presence(1.0, Appeared.FOUND, 7))
    history.add(Beat(1.0, 30.0, 300, 33.0, (LongStep(3.0, 3.0, 17),), {"job_memory_bytes": 1e9}))
    assert told(figures) == {
        ("perfdoctor_job_up", ""): 1.0,
        ("perfdoctor_job_starts_total", ""): 1.0,
        ("perfdoctor_step_seconds", ""): 0.1,
        ("perfdoctor_steps_total", ""): 300.0,
        ("perfdoctor_long_step_seconds_total", ""): 3.0,
        ("perfdoctor_job_memory_bytes", ""): 1e9,
    }
    history.add(Window(40.0, 10.0, "interval", "io.storage_read", shares={"io.storage_read": 0.6}))
    for until in (None, 90.0):
        history.add(Incident(1, Happened.SLOWER, 50.0, until))
    history.add(Presence(99.0, Appeared.ENDED, 7))
    found = told(figures)
    assert found["perfdoctor_cause_share", "io.storage_read"] == 0.6
    assert found["perfdoctor_windows_total", ""] == 1
    assert found["perfdoctor_incidents_total", "slower"] == 1
    assert found["perfdoctor_job_up", ""] == 0


def test_totals_stay_when_a_history_is_shortened(tmp_path: Path) -> None:
    history, figures = History(tmp_path), HistoryMetrics(tmp_path / "history.jsonl")
    lines = (
        Presence(1.0, Appeared.FOUND, 7),
        Beat(1.0, 30.0, 300, 30.0),
        Window(20.0, 10.0, "interval"),
        Beat(31.0, 30.0, 300, 30.0),
    )
    for line in lines:
        history.add(line)
    before = told(figures)
    shortened = tmp_path / "history.part"
    shortened.write_bytes(b"".join(history.path.read_bytes().splitlines(keepends=True)[i] for i in (0, 2, 3)))
    shortened.replace(history.path)
    assert told(figures) == before
    history.add(Beat(61.0, 30.0, 200, 30.0))
    assert told(figures)["perfdoctor_steps_total", ""] == 800


def test_a_history_that_is_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    history, figures = History(tmp_path), HistoryMetrics(tmp_path / "history.jsonl")
    history.add(Beat(1.0, 30.0, 300, 30.0))
    history.add(Beat(31.0, 30.0, 300, 30.0))
    assert told(figures)["perfdoctor_steps_total", ""] == 600
    history.path.rename(tmp_path / "history.jsonl.1")
    history.add(Beat(61.0, 30.0, 200, 30.0))
    assert told(figures)["perfdoctor_steps_total", ""] == 800
