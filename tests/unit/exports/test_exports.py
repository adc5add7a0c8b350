"""Recordings in the formats of other tools: each says what was seen, in a form that its readers take."""

import gzip
import json
import resource
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

import perfdoctor
from perfdoctor.__main__ import main
from perfdoctor.errors import PerfDoctorError
from perfdoctor.exports.dataframes import read_frames
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Event, Sample
from perfdoctor.recording.stack_segments import file_for
from perfdoctor.reports import html
from perfdoctor.reports import json as json_report
from tests.builders import diagnoses
from tests.builders.jobs import BOOTSTRAP, MODULE, OWN, START, at, named, process, readings, stacks, thread, write
from tests.recordings import corpus, packing

# What speedscope asks of a file (github.com/jlfwong/speedscope, src/lib/file-format-spec.ts), as JSON Schema.
SPEEDSCOPE = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "integer", "minimum": 0},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "file": {"type": "string"},
                            "line": {"type": "integer"},
                        },
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
                "properties": {
                    "type": {"const": "sampled"},
                    "unit": {"enum": ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]},
                    "samples": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                    "weights": {"type": "array", "items": {"type": "number", "minimum": 0}},
                },
            },
        },
    },
}

# What Chrome's trace event format ("Trace Event Format", linked from perfetto.dev, "External trace formats") asks of
# each kind of event that is written: names of processes and threads, slices, counters and instants.
IDS = {"pid": {"type": "integer", "minimum": 0}, "tid": {"type": "integer", "minimum": 0}, "name": {"type": "string"}}
AT = {**IDS, "ts": {"type": "number"}}
TEXTS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}
NUMBERS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number"}}
METADATA = {"enum": ["process_name", "process_labels", "thread_name"]}
CHROME = {
    "M": {"required": ["name", "pid", "args"], "properties": {**IDS, "name": METADATA, "args": TEXTS}},
    "X": {
        "required": ["name", "pid", "tid", "ts", "dur"],
        "properties": {**AT, "dur": {"type": "number", "minimum": 0}, "args": {"type": "object"}},
    },
    "C": {"required": ["name", "pid", "ts", "args"], "properties": {**AT, "args": NUMBERS}},
    "i": {"required": ["name", "pid", "tid", "ts", "s"], "properties": {**AT, "s": {"enum": ["g", "p", "t"]}}},
}


def job() -> list[Sample]:
    """A trainer that reads for half of the time, and one number of each kind."""
    return [
        *process(7),
        *thread(7, 7, "RRRRRSSSSS", call="read", target="file:/data/a"),
        *named(7, 7, 1, "MainThread"),
        *stacks(7, (OWN,), (OWN, MODULE), times=20),
        *readings("pid:7", "rss_bytes", 100.0, 300.0, None, 200.0),
        *readings("host", "busy_seconds_total", 10.0, 12.0, 1.0, 4.0),
        *readings('mount:/a"b\\c', "free_bytes", 5.0),
        Event(at(1.0), "slower", "a lowered rate"),
    ]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A recording of that job."""
    return write(tmp_path / "job.perfdoctor", job())


@pytest.fixture(scope="module", params=["sound_from_inside", "straggler_disk"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a real job: with steps and phases that were marked, and with ranks and workers."""
    file = tmp_path_factory.mktemp("real") / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"{request.param}{corpus.SUFFIX}", file)
    return file


def exported(recording: Path, kind: str, name: str = "out") -> Path:
    path = recording.with_name(name)
    assert main(["export", str(recording), "--to", kind, str(path), "--force"]) == 0
    return path


def trace(recording: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(exported(recording, "perfetto").read_text())["traceEvents"]
    return events


def tracks(events: list[dict[str, Any]]) -> Iterator[list[tuple[float, float]]]:
    """Slices by track, as beginnings and ends in ns, in the order in which they nest."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            found.setdefault((event["pid"], event["tid"]), []).append((begin, end))
    for spans in found.values():
        yield sorted(spans, key=lambda span: (span[0], -span[1]))


def test_states_that_go_on_are_one_slice(made: Path) -> None:
    states = [event for event in trace(made) if event["ph"] == "X" and event["tid"] == 7]
    assert [event["name"] for event in states[:3]] == ["running or ready", "read", "running or ready"]
    assert [event["dur"] for event in states[:3]] == pytest.approx([100_000.0] * 3)
    assert states[1]["args"] == {"state": "S", "target": "file:/data/a"}
    assert states[1]["ts"] == pytest.approx(100_000.0)


def test_calls_nest_as_the_stack_does(made: Path) -> None:
    events = trace(made)
    (track,) = (event["tid"] for event in events if event["args"].get("name") == "Python stack: MainThread")
    calls = [event for event in events if event["ph"] == "X" and event["tid"] == track]
    outer = [event for event in calls if event["name"] == "main"]
    inner = [event for event in calls if event["name"] == "Module._call_impl"]
    assert len(outer) == 1
    assert len(inner) == 10
    assert outer[0]["args"] == {"file": OWN.file, "line": OWN.line}
    assert sum(event["dur"] for event in inner) == pytest.approx(500_000, rel=0.1)


def test_levels_are_levels_and_what_grows_is_a_rate(made: Path) -> None:
    counters = [event for event in trace(made) if event["ph"] == "C"]
    resident = [event for event in counters if event["name"] == "rss_bytes"]
    assert {event["pid"] for event in resident} == {7}
    assert [event["args"]["value"] for event in resident] == [100.0, 300.0, 200.0]
    assert [event["ts"] for event in resident] == pytest.approx([0.0, 1e6, 3e6])
    busy = [event for event in counters if event["name"] == "host busy_seconds per second"]
    assert [event["args"]["value"] for event in busy] == [2.0, 3.0]  # between them it began anew


def test_what_happened_to_the_recording_and_its_clock_are_in_the_trace(made: Path) -> None:
    document = json.loads(exported(made, "perfetto").read_text())
    assert document["otherData"]["clock"] == "CLOCK_MONOTONIC"
    assert document["otherData"]["start_ns"] == START
    (event,) = (event for event in document["traceEvents"] if event["ph"] == "i")
    assert (event["name"], event["ts"]) == ("slower", 1e6)


def test_a_trace_begins_with_what_came_before_the_recording(tmp_path: Path) -> None:
    """Perfetto drops what is before zero."""
    file = write(tmp_path / "job.perfdoctor", [*process(7), Event(at(-0.5), "early", ""), Event(at(1.0), "late", "")])
    document = json.loads(exported(file, "perfetto").read_text())
    assert [event["ts"] for event in document["traceEvents"] if event["ph"] == "i"] == [0.0, 1.5e6]
    assert document["otherData"]["start_ns"] == at(-0.5)


def test_a_trace_is_in_chromes_format(real: Path) -> None:
    events = trace(real)
    assert {"M", "X", "C"} <= {event["ph"] for event in events}
    kinds = {kind: jsonschema.Draft202012Validator({"type": "object", **asked}) for kind, asked in CHROME.items()}
    assert [event for event in events if not kinds[event["ph"]].is_valid(event)] == []


def test_slices_of_a_real_job_nest_and_are_named(real: Path) -> None:
    events = trace(real)
    for spans in tracks(events):
        open_until: list[float] = []
        for begin, end in spans:
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)
    named_tracks = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= named_tracks


def test_marked_steps_of_a_real_job_follow_each_other(tmp_path: Path) -> None:
    file = tmp_path / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"sound_from_inside{corpus.SUFFIX}", file)
    steps = [event for event in trace(file) if event["ph"] == "X" and event["name"].startswith("step ")]
    phases = {event["name"] for event in trace(file) if event["ph"] == "X"}
    assert len(steps) == corpus.load("sound_from_inside")["diagnosis"]["steps"]["count"]
    assert all(one["ts"] + one["dur"] <= other["ts"] + 0.001 for one, other in pairwise(steps))
    assert {"forward", "backward", "optimizer"} <= phases


def test_a_trace_can_be_packed(made: Path) -> None:
    packed = exported(made, "perfetto", "out.json.gz").read_bytes()
    assert json.loads(gzip.decompress(packed))["displayTimeUnit"] == "ms"


def test_speedscope_gets_what_it_asks_for(real: Path) -> None:
    document = json.loads(exported(real, "speedscope").read_text())
    jsonschema.validate(document, SPEEDSCOPE)
    count = len(document["shared"]["frames"])
    for profile in document["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= number < count for stack in profile["samples"] for number in stack)
        assert profile["endValue"] - profile["startValue"] == pytest.approx(sum(profile["weights"]))


def test_stacks_weigh_what_they_lasted(tmp_path: Path) -> None:
    samples = [*process(7), *named(7, 7, 1), *named(8, 7, 2, "reader")]
    samples += [*stacks(7, (OWN,), (OWN, MODULE), times=20), *stacks(7, (BOOTSTRAP,), ident=2, times=20)]
    document = json.loads(exported(write(tmp_path / "job.perfdoctor", samples), "speedscope").read_text())
    main_thread, reader = document["profiles"]
    assert main_thread["name"] == "python 7: main thread"
    assert reader["name"] == "python 7: reader"
    names = [one["name"] for one in document["shared"]["frames"]]
    weights: dict[tuple[str, ...], float] = {}
    for stack, weight in zip(main_thread["samples"], main_thread["weights"], strict=True):
        called = tuple(names[number] for number in stack)
        weights[called] = weights.get(called, 0.0) + weight
    assert weights == pytest.approx({("main",): 0.5, ("main", "Module._call_impl"): 0.5}, abs=0.05)


def test_stacks_begin_with_those_of_a_trainer(tmp_path: Path) -> None:
    samples = [*process(7), *process(8, parent=7), *named(7, 7, 1, "MainThread"), *named(8, 8, 1, "MainThread")]
    samples += [*stacks(7, (BOOTSTRAP,), times=20), *stacks(8, (OWN,), (OWN, MODULE), times=20)]
    document = json.loads(exported(write(tmp_path / "job.perfdoctor", samples), "speedscope").read_text())
    assert [one["name"] for one in document["profiles"]] == ["python 8: MainThread", "python 7: MainThread"]


def test_stacks_that_a_killed_perfdoctor_left_are_exported(tmp_path: Path) -> None:
    (segment,) = stacks(7, (OWN,), times=20)
    file = write(tmp_path / "job.perfdoctor", process(7))
    file_for(file, 7, segment.time_ns, 0).write_bytes(zlib.decompress(segment.trace))
    document = json.loads(exported(file, "speedscope").read_text())
    assert [one["name"] for one in document["profiles"]] == ["python 7: main thread"]
    assert "main" in {event["name"] for event in trace(file) if event["ph"] == "X"}


def test_a_recording_without_stacks_has_none_to_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "job.perfdoctor", process(7))
    assert main(["export", str(file), "--to", "speedscope", str(tmp_path / "out")]) == 1
    assert "There are no Python stacks" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_are_those_of_the_notebook(kind: str, made: Path) -> None:
    folder = exported(made, kind)
    with Recording.open(made) as recording:
        frames = read_frames(recording)
    assert {file.name for file in folder.iterdir()} == {f"{name}.{kind}" for name in frames}
    file = folder / f"readings.{kind}"
    again = pd.read_csv(file) if kind == "csv" else pd.read_parquet(file)
    assert again["value"].isna().sum() == 1
    assert again["value"].sum() == frames["readings"]["value"].sum()
    assert list(again) == list(frames["readings"])


def test_all_tables_of_a_real_job_are_read_back(real: Path) -> None:
    with Recording.open(real) as recording:
        frames = read_frames(recording)
    csv, parquet = exported(real, "csv", "as csv"), exported(real, "parquet", "as parquet")
    for name, frame in frames.items():
        table = pq.read_table(parquet / f"{name}.parquet")
        assert table.column_names == list(frame)
        assert table.num_rows == len(frame)
        pd.testing.assert_frame_equal(pd.read_parquet(parquet / f"{name}.parquet"), frame, check_dtype=False)
        again = pd.read_csv(csv / f"{name}.csv")
        assert list(again) == list(frame)
        for column in again.select_dtypes("number"):
            values = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=float, na_value=float("nan"))
            assert again[column].to_numpy(dtype=float) == pytest.approx(values, nan_ok=True), (name, column)


def test_prometheus_reads_the_last_figures(made: Path) -> None:
    families = {one.name: one for one in text_string_to_metric_families(exported(made, "prometheus").read_text())}
    resident = families["perfdoctor_test_rss_bytes"]
    assert resident.type == "gauge"
    assert resident.documentation.startswith("rss_bytes as the test probe read it last")
    assert [(one.labels, one.value) for one in resident.samples] == [({"subject": "pid:7"}, 200.0)]
    busy = families["perfdoctor_test_busy_seconds"]
    assert busy.type == "counter"
    assert busy.samples[0].value == 4.0
    assert families["perfdoctor_test_free_bytes"].samples[0].labels == {"subject": 'mount:/a"b\\c'}


def test_prometheus_gets_the_verdict_of_a_real_job(real: Path) -> None:
    families = {one.name: one for one in text_string_to_metric_families(exported(real, "prometheus").read_text())}
    shares = families["perfdoctor_cause_share"].samples
    assert sum(one.value for one in shares) == pytest.approx(1, abs=0.001)
    (confidence,) = families["perfdoctor_verdict_confidence"].samples
    assert confidence.labels["cause"].startswith(confidence.labels["bottleneck"])
    assert all(one.type in ("gauge", "counter") for one in families.values())


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    assert main(["export", *map(str, arguments)]) == 1
    sentence, move = capsys.readouterr().err.splitlines()
    return sentence, move


def test_what_is_there_is_left_alone_unless_it_is_forced(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = made.with_name("taken")
    taken.write_text("data")
    for kind in ("perfetto", "csv"):
        sentence, move = refused(capsys, made, "--to", kind, taken)
        assert sentence.endswith("taken is there already.")
        assert "--force" in move
    assert taken.read_text() == "data"
    exported(made, "perfetto", "taken")
    assert taken.read_text().startswith("{")
    refused(capsys, made, "--to", "csv", taken, "--force")
    exported(made, "csv", "tables")
    sentence, _ = refused(capsys, made, "--to", "csv", made.with_name("tables"))
    assert "is there already" in sentence


def test_a_recording_is_not_replaced_by_what_is_made_of_it(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = made.read_bytes()
    assert main(["export", str(made), "--to", "perfetto", str(made), "--force"]) == 1
    assert "is a recording, which cannot be made again" in capsys.readouterr().err
    assert main(["report", str(made), "--json", str(made), "--force"]) == 1
    assert made.read_bytes() == before
    twice = str(made.with_name("twice.json"))
    assert main(["export", str(made), "--to", "perfetto", twice, "--to", "speedscope", twice]) == 1
    assert "is named for two things" in capsys.readouterr().err


def test_a_report_is_told_from_other_files_that_are_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    file.write_text(json_report.render(diagnoses.input_bound()))
    for command in (["export", str(file), "--to", "csv", str(tmp_path / "tables")], ["report", str(file)]):
        assert main(command) == 1
        said = capsys.readouterr().err
        assert "is a JSON report, not a recording" in said
        assert "Name the recording" in said


def test_a_page_is_told_from_other_files_that_are_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(html.render(diagnoses.input_bound()))
    with pytest.raises(PerfDoctorError, match="is a page to read, not a recording"):
        perfdoctor.load(file)


def test_what_cannot_be_done_is_said_before_anything_is(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = made.with_name("out.json")
    sentence, move = refused(capsys, made, "--to", "perfetto", wanted, "--to", "tape", "out")
    assert sentence == (
        "perfdoctor: There is no export 'tape'; there are perfetto, speedscope, prometheus, csv, parquet."
    )
    assert "--to perfetto FILE.json" in move
    sentence, move = refused(capsys, made, "--to", "perfetto", wanted, "--to", "csv", made.parent / "no" / "out")
    assert "There is no folder" in sentence
    assert not wanted.exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_without_room_for_all_of_them_leave_nothing(
    kind: str, real: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, (soft, hard) = tmp_path / "tables", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # some tables are larger than that, others are not
    try:
        assert main(["export", str(real), "--to", kind, str(folder)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"{folder} cannot be written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
