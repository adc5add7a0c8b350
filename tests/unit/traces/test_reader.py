"""Reading traces: all formats that Kineto had, and files that are damaged, cut short, or something else."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.cluster.files import find_traces
from perfdoctor.errors import PerfDoctorError
from perfdoctor.traces import decode
from perfdoctor.traces.model import UNKNOWN, DeviceKind, HostKind, Trace
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import GEMM, MadeTrace
from tests.files import real


def small() -> MadeTrace:
    made = MadeTrace()
    made.gpu()
    made.step(1, 1000.0, 1400.0)
    made.operator("aten::mm", 1010.0, 1030.0)
    made.launch(GEMM, 1015.0, 1025.5, 1125.25, stream="12")
    made.on_device("Memcpy HtoD (Pageable -> Device)", 1130.0, 1140.0, 99, category="gpu_memcpy")
    return made


def read(made: MadeTrace, folder: Path, name: str = "trace.json") -> Trace:
    return read_trace(made.write(folder / name))


def table(trace: Trace) -> list[tuple[Any, ...]]:
    device = trace.device
    return [
        (trace.names[name], int(start), int(end), int(kind), int(correlation))
        for name, start, end, kind, correlation in zip(
            device.name, device.start, device.end, device.kind, device.correlation, strict=True
        )
    ]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_columns_are_nanoseconds_since_the_first_event(tmp_path: Path, name: str) -> None:
    trace = read(small(), tmp_path, name)
    assert table(trace) == [
        (GEMM, 25_500, 125_250, DeviceKind.KERNEL, 1),
        ("Memcpy HtoD (Pageable -> Device)", 130_000, 140_000, DeviceKind.COPY, 99),
    ]
    assert trace.device.stream.tolist() == [12, 7]
    assert trace.device.blocks.tolist() == [1024, UNKNOWN]
    assert [trace.names[row] for row in trace.host.name] == ["ProfilerStep#1", "aten::mm"]
    assert trace.host.kind.tolist() == [HostKind.ANNOTATION, HostKind.OPERATOR]
    assert trace.calls.correlation.tolist() == [1]
    assert (trace.devices[0].multiprocessors, trace.devices[0].capability) == (132, 9.0)
    assert trace.notes == ()


def test_pieces_give_what_the_whole_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = small()
    for number in range(300):
        made.launch(f"kernel {number}", 2000.0 + number, 2005.0 + number, 2005.5 + number)
    made.document["distributedInfo"] = {"rank": 3, "world_size": 4, "pg_config": [{"a": 1}, {"b": 2}]}
    whole = read(made, tmp_path)
    monkeypatch.setattr(decode, "PIECE", 1000)
    monkeypatch.setattr(decode, "UNPACKED_PIECE", 300)
    parts = read(made, tmp_path)
    assert table(parts) == table(whole)
    assert (parts.rank, parts.world, parts.notes, parts.events) == (3, 4, (), whole.events)


def test_list_root_and_old_categories(tmp_path: Path) -> None:
    new = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cpu_op": "Operator", "cuda_runtime": "Runtime"}
    made = small()
    old = [{**event, "cat": new.get(event["cat"], event["cat"])} for event in made.events]
    path = tmp_path / "list.json"
    path.write_text(json.dumps(old))
    trace = read_trace(path)
    assert table(trace) == table(read(made, tmp_path))
    assert len(trace.calls) == 1
    assert trace.devices == {}


def test_what_stands_behind_the_events_is_read(tmp_path: Path) -> None:
    made = small()
    path = tmp_path / "behind.json"
    path.write_text(json.dumps({"traceEvents": made.events, "baseTimeNanoseconds": 1_700_000_000_000_000_000}))
    assert read_trace(path).origin_ns == 1_700_000_000_000_000_000 + 1_000_000


def test_times_since_boot_are_no_date(tmp_path: Path) -> None:
    assert read(small(), tmp_path).origin_ns is None


def test_begins_and_ends_are_joined(tmp_path: Path) -> None:
    made = small()
    where = {"pid": 100, "tid": 100, "cat": "user_annotation"}
    for phase, name, time in (
        ("B", "outer", 2000),
        ("B", "inner", 2010),
        ("E", "", 2020),
        ("E", "", 2050),
        ("B", "open", 2060),
    ):
        made.events.append({"ph": phase, "name": name, "ts": time, **where})
    trace = read(made, tmp_path)
    host = trace.host
    spans = {
        trace.names[name]: (int(start), int(end))
        for name, start, end in zip(host.name, host.start, host.end, strict=True)
    }
    assert (spans["outer"], spans["inner"]) == ((1_000_000, 1_050_000), (1_010_000, 1_020_000))
    assert "1 ranges have no end" in trace.notes[0]


def test_negative_and_missing_durations_are_told(tmp_path: Path) -> None:
    made = small()
    made.operator("backwards", 1300.0, 1200.0)
    made.operator("endless", 1300.0, 1310.0)
    del made.events[-1]["dur"]
    trace = read(made, tmp_path)
    assert (trace.host.end >= trace.host.start).all()
    assert [note.split()[0:3] for note in trace.notes] == [["1", "ranges", "have"], ["1", "ranges", "end"]]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_short_gives_what_is_there(tmp_path: Path, packed: bool) -> None:
    made = small()
    for number in range(200):
        made.launch(f"kernel {os.urandom(20).hex()}", 2000.0 + number, 2005.0, 2005.5)
    data = made.text().encode()
    data = gzip.compress(data) if packed else data
    path = tmp_path / "cut.json"
    path.write_bytes(data[: len(data) // 2])
    trace = read_trace(path)
    assert 20 < len(trace.device) < 180
    assert any("cut short" in note if packed else "could not be decoded" in note for note in trace.notes)


def test_a_damaged_packed_file_gives_what_is_sound(tmp_path: Path) -> None:
    made = small()
    for number in range(20_000):
        made.launch(f"kernel {os.urandom(20).hex()}", 2000.0 + number, 2005.0, 2005.5)
    data = bytearray(gzip.compress(made.text().encode()))
    data[len(data) // 2 :] = os.urandom(len(data) // 2)
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(data)
    trace = read_trace(path)
    assert 5_000 < len(trace.device) < 15_000
    assert "damaged" in trace.notes[0] or "cut short" in trace.notes[0]


def test_a_damaged_event_costs_only_itself(tmp_path: Path) -> None:
    made = small()
    whole = made.text()
    path = tmp_path / "damaged.json"
    path.write_text(whole.replace('"aten::mm"', '"aten::mm'))
    trace = read_trace(path)
    assert table(trace) == table(read(made, tmp_path))
    assert not any(trace.names[row] == "aten::mm" for row in trace.host.name)
    assert trace.notes[0].startswith("1 of ")


def test_an_event_of_another_shape_costs_only_itself(tmp_path: Path) -> None:
    made = small()
    made.events.insert(2, {"ph": "X", "cat": "kernel", "name": ["no", "text"], "ts": 1.0, "dur": 1.0})
    made.events.append({"ph": "X", "cat": "kernel", "name": "huge", "ts": 1.0, "dur": 1.0, "args": {"stream": 10**30}})
    trace = read(made, tmp_path)
    assert len(trace.device) == 2
    assert trace.notes[0].startswith("2 of ")


def test_an_operator_that_launches_a_kernel_of_triton_names_its_grid_in_text(tmp_path: Path) -> None:
    """Beside events that today's profiler does not write, so that each is decoded as one of any kind."""
    made = small()
    made.span("cpu_op", "triton_poi_fused_add_0", 1040.0, 1050.0, args={"grid": "grid(100,)"})
    made.events.append({"ph": "X", "cat": "of another tool", "name": "", "ts": 1.0, "dur": 1.0})
    trace = read(made, tmp_path)
    assert "triton_poi_fused_add_0" in [trace.names[row] for row in trace.host.name]
    assert not any("decoded" in note for note in trace.notes)


@pytest.mark.parametrize("time", [1e308, -1e18, 1e17])
def test_one_wrong_time_does_not_stretch_the_trace(tmp_path: Path, time: float) -> None:
    made = small()
    sound = table(read(made, tmp_path))
    made.on_device("lost", time, time, 7, **{"Collective name": "allreduce"})
    made.on_device("late", 1150.0, 1160.0, 8, **{"Collective name": "allreduce"})
    trace = read(made, tmp_path)
    assert table(trace)[:-1] == sound
    assert list(trace.messages) == [2]
    assert trace.notes[0].startswith("1 events lie more than a day away")


def test_numbers_too_large_for_a_column_are_unknown(tmp_path: Path) -> None:
    made = small()
    made.on_device("huge", 1150.0, 1160.0, 1e30, stream=1e300)
    trace = read(made, tmp_path)
    assert (trace.device.correlation[-1], trace.device.stream[-1]) == (UNKNOWN, UNKNOWN)


def test_devices_of_an_unknown_kind_are_counted(tmp_path: Path) -> None:
    made = small()
    made.span("npu_kernel", "MatMul", 1.0, 2.0)
    assert read(made, tmp_path).unknown_categories == {"npu_kernel": 1}


def test_collectives_keep_what_they_carried(tmp_path: Path) -> None:
    made = MadeTrace()
    made.on_device("late", 50.0, 60.0, 2)
    message = {"Collective name": "allreduce", "Seq": 12, "In msg nelems": 10, "Out msg nelems": 20, "dtype": "Float"}
    made.on_device("ncclDevKernel", 10.0, 20.0, 1, **message)
    [(row, found)] = read(made, tmp_path).messages.items()
    assert row == 0
    assert (found.name, found.sequence, found.elements) == ("allreduce", 12, 20)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"hello", "it is not JSON"),
        (b'{"nodes": []}', "it is JSON without traceEvents"),
        (b"SQLite format 3\x00", "SQLite"),
        (b'{"traceEvents": []}', "no event"),
        (b"\x1f\x8b", "it is empty"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(PerfDoctorError, match=reason) as refused:
        read_trace(path)
    assert refused.value.hint


def test_folders_are_searched_for_traces(tmp_path: Path) -> None:
    for name in ("b.json.gz", "a.pt.trace.json", "notes.txt"):
        (tmp_path / name).write_text("x")
    assert [path.name for path in find_traces([tmp_path, tmp_path / "b.json.gz"])] == ["a.pt.trace.json", "b.json.gz"]
    with pytest.raises(PerfDoctorError, match="There is no file"):
        find_traces([tmp_path / "absent"])


@pytest.mark.parametrize(
    ("name", "device", "calls"),
    [
        ("resnet50-v100-list-root", 9927, 10800),
        ("toy-mi250", 16, 21),
        ("gpu-only-mi210", 562, 631),
        ("moe-expert-parallel-b200-before", 914, 2421),
        ("cpu-only-gloo-rank34-of-300", 0, 0),
    ],
)
def test_real_traces_are_read_whole(name: str, device: int, calls: int) -> None:
    trace = read_trace(real(name))
    assert (len(trace.device), len(trace.calls), trace.notes) == (device, calls, ())
