"""Damaged traces, two thousand of them: no crash, no hang, and nothing lost without a word."""

from __future__ import annotations

import gzip
import json
import math
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from perfdoctor.errors import PerfDoctorError
from perfdoctor.reports.json import render
from perfdoctor.traces.model import Trace
from perfdoctor.traces.reader import read_trace
from tests.builders.damaged_traces import (
    MUTATIONS,
    Mutation,
    cut,
    cut_packed,
    flip_bits_packed,
    move_bytes,
    negative_durations,
)
from tests.builders.traces import ALL_REDUCE, ELEMENTWISE, GEMM, MadeTrace, diagnose_traces
from tests.files import real

TIMES_EACH = 143  # 14 mutations: 2,002 traces
# Far beyond what a test takes: a hang fails, and no speed is tested.
HANG_S = 300


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still busy after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANG_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def job() -> MadeTrace:
    """Two steps with all that the reader knows: operators, frames, calls, copies, collectives, pairs of events."""
    made = MadeTrace()
    made.gpu()
    made.document["distributedInfo"] = {"backend": "nccl", "rank": 1, "world_size": 2}
    made.document["baseTimeNanoseconds"] = 1_700_000_000_000_000_000
    for number in range(2):
        begin = 1000.0 + 2000.5 * number
        made.step(number, begin, begin + 1900)
        made.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 5, begin + 205.5)
        made.span("python_function", "train.py(7): step", begin + 210, begin + 1800)
        for index in range(6):
            at = begin + 220 + 100 * index
            given = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
            made.span("cpu_op", "aten::mm", at, at + 30.25, args={**given, "Call stack": "net.py(3): f;train.py(7): g"})
            made.launch((GEMM, ELEMENTWISE)[index % 2], at + 10, at + 20.5, at + 80.125)
        collective = {"Collective name": "allreduce", "Seq": number, "In msg nelems": 4096, "Out msg nelems": 4096}
        made.launch(ALL_REDUCE, begin + 900, begin + 910, begin + 1500, **collective, dtype="Float")
        copy = made.call("cudaMemcpyAsync", begin + 1000, begin + 1600)
        made.on_device(
            "Memcpy DtoH (Device -> Pageable)", begin + 1580, begin + 1590, copy, category="gpu_memcpy", bytes=4
        )
        made.events.append(
            {"ph": "B", "cat": "cpu_op", "name": "aten::add", "pid": 100, "tid": 100, "ts": begin + 1700}
        )
        made.events.append(
            {"ph": "E", "cat": "cpu_op", "name": "aten::add", "pid": 100, "tid": 100, "ts": begin + 1710}
        )
        made.events.append(
            {"ph": "s", "id": number, "cat": "ac2g", "name": "ac2g", "pid": 100, "tid": 100, "ts": begin}
        )
        made.events.append({"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "args": {"name": "python"}})
    return made


def as_of_2021(document: Any) -> list[Any]:
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cpu_op": "Operator", "cuda_runtime": "Runtime"}
    return [{**event, "cat": old.get(event.get("cat"), event.get("cat"))} for event in document["traceEvents"]]


def on_the_cpu(document: Any) -> dict[str, Any]:
    host = ("cpu_op", "user_annotation", "python_function")
    return {"schemaVersion": 1, "traceEvents": [event for event in document["traceEvents"] if event.get("cat") in host]}


def documents() -> list[Any]:
    today = json.loads(job().text())
    return [today, today, as_of_2021(today), on_the_cpu(today)]


def rows(trace: Trace) -> int:
    return len(trace.device) + len(trace.host) + len(trace.calls)


def is_json(data: bytes) -> bool:
    try:
        json.loads(data.decode("utf-8", "replace"), strict=False)
    except ValueError:
        return False
    return True


def listed(data: bytes) -> int | None:
    """How many events another reader finds; None if it is no JSON."""
    if not is_json(data):
        return None
    document = json.loads(data.decode("utf-8", "replace"), strict=False)
    return len(document if isinstance(document, list) else document.get("traceEvents", ()))


def examine(path: Path) -> Trace | None:
    """Reads and diagnoses; None where perfdoctor says that it cannot."""
    try:
        trace = read_trace(path)
    except PerfDoctorError as error:
        return None if len(str(error)) > 20 else pytest.fail(f"says next to nothing: {error}")
    diagnosis = diagnose_traces([trace])
    shares = [line.share for line in diagnosis.breakdown]
    assert all(math.isfinite(share) and -1e-9 <= share <= 1 + 1e-9 for share in shares), shares
    assert not shares or sum(shares) == pytest.approx(1.0, abs=0.001)
    json.loads(render(diagnosis), parse_constant=lambda name: pytest.fail(f"{name} in the report"))
    told = " ".join(one.reason for one in diagnosis.not_examined)
    assert all(note in told for note in trace.notes), "a note did not reach the report"
    return trace


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: str(mutation.__name__))
def test_damage_is_survived_and_said(mutation: Mutation, tmp_path: Path) -> None:
    sound = documents()
    expected = []
    for number, document in enumerate(sound):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(document))
        trace = examine(path)
        assert trace is not None
        assert trace.notes == ()
        expected.append(rows(trace))
    path = tmp_path / "damaged.json"
    for seed in range(TIMES_EACH):
        which = seed % len(sound)
        data = mutation(Random(f"{mutation.__name__} {seed}"), sound[which])
        path.write_bytes(data)
        try:
            trace = examine(path)
        except Exception as error:
            raise AssertionError(f"{mutation.__name__}, seed {seed}: {type(error).__name__}: {error}") from error
        if trace is None:
            continue
        said = bool(trace.notes or trace.unknown_categories)
        # A run of bytes can go from inside one event to inside another, and what is left is a sound, shorter file.
        shorter = mutation is move_bytes and trace.events == listed(data)
        assert said or shorter or rows(trace) >= expected[which], (
            f"{mutation.__name__}, seed {seed}: events are gone without a word"
        )
        packed = data.startswith(b"\x1f\x8b")
        assert said or packed or is_json(data), f"{mutation.__name__}, seed {seed}: no JSON, and nobody says so"
        if mutation in (cut, cut_packed, negative_durations):
            assert said, f"{mutation.__name__}, seed {seed}"


def test_a_damaged_pack_is_said(tmp_path: Path) -> None:
    """A flipped bit in a pack changes its check sum at least."""
    document = documents()[0]
    path = tmp_path / "damaged.json.gz"
    for seed in range(60):
        data = flip_bits_packed(Random(seed), document)
        path.write_bytes(data)
        trace = examine(path)
        header = next(
            index for index, (one, other) in enumerate(zip(data, pack_of(document), strict=True)) if one != other
        )
        if trace is not None and header >= 10:  # a header holds a time and a system that do not matter
            assert trace.notes, seed


def pack_of(document: Any) -> bytes:
    return gzip.compress(json.dumps(document).encode(), mtime=0)


@pytest.mark.parametrize("name", ["toy-mi250", "bert-small-h100"])
def test_real_traces_are_survived_in_pieces(name: str, tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(real(name).read_bytes()))
    document["traceEvents"] = document["traceEvents"][:250]
    path = tmp_path / "damaged.json"
    for mutation in MUTATIONS:
        for seed in range(5):
            path.write_bytes(mutation(Random(seed), document))
            examine(path)
