"""Summaries: small, and worth as much as the whole when ranks are compared."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from perfdoctor.analysis.from_traces import diagnose_ranks
from perfdoctor.cluster.packing import Damaged, pack, unpack
from perfdoctor.cluster.summarise import MOST_BYTES, condense
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.rank import Rank, summarize
from perfdoctor.traces.reader import read_trace
from tests.builders.rank_traces import MadeJob
from tests.files import real


def figures(diagnosis: Diagnosis) -> dict[str, float]:
    """All shares, those of single ranks and their waits included."""
    found = {line.cause: line.share for line in diagnosis.breakdown}
    for one in diagnosis.ranks:
        found |= {f"{one['rank']} {line['cause']}": line["share"] for line in one["breakdown"]}
        found |= {f"{one['rank']} for {other}": share for other, share in one["waits_for"].items()}
    return {name: share for name, share in found.items() if share >= 0.001}


def train(steps: int) -> MadeJob:
    """Three ranks; the second fetches longer, and they meet twice in each step."""
    job = MadeJob(3)
    for _ in range(steps):
        begun = list(job.now)
        for rank in range(3):
            job.load(rank, 5000.0 if rank == 1 else 100.0)
            job.compute(rank, 4000.0)
        job.meet(1000.0)
        for rank in range(3):
            job.compute(rank, 500.0 * (rank + 1))
        job.meet(500.0, group="1")
        job.step(begun)
    return job


def ranks_of(paths: list[Path]) -> list[Rank]:
    return [summarize(read_trace(path)) for path in paths]


@pytest.mark.parametrize("name", ["made", "nanogpt-8xh100", "torchrec-4xv100-sleep"])
def test_summaries_tell_what_whole_ranks_tell(name: str, tmp_path: Path) -> None:
    paths = train(10).write(tmp_path / "made") if name == "made" else sorted(real(name).iterdir())
    whole = ranks_of(paths)
    packed = [condense(rank) for rank in whole]
    assert max(map(len, packed)) <= MOST_BYTES
    one, other = diagnose_ranks(whole), diagnose_ranks([unpack(each) for each in packed])
    decided = ("cause", "straggler_rank", "confidence", "level")
    assert [getattr(other.verdict, name) for name in decided] == [getattr(one.verdict, name) for name in decided]
    assert other.verdict.share == pytest.approx(one.verdict.share, abs=0.001)
    assert figures(other) == pytest.approx(figures(one), abs=0.002)


def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path) -> None:
    whole = ranks_of(train(400).write(tmp_path / "made"))
    packed = [condense(rank) for rank in whole]
    assert max(map(len, packed)) <= MOST_BYTES
    ranks = [unpack(one) for one in packed]
    assert 50 < len(ranks[0].collectives) < len(whole[0].collectives)
    diagnosis = diagnose_ranks(ranks)
    assert diagnosis.verdict.straggler_rank == 1
    assert figures(diagnosis) == pytest.approx(figures(diagnose_ranks(whole)), abs=0.02)
    assert any("cluster.last_collectives" in str(item.reason) for item in diagnosis.not_examined)


def test_a_rank_whose_names_alone_are_too_much_still_fits(tmp_path: Path) -> None:
    [rank] = ranks_of([train(3).traces[0].write(tmp_path / "trace.json")])
    random = np.random.default_rng(1)
    names = {random.bytes(60).hex(): 1000.0 for _ in range(50)}
    many = {f"gpu.{number}": Amounts(names) for number in range(40)}
    packed = condense(replace(rank, kernels=many))
    assert len(packed) <= MOST_BYTES
    assert unpack(packed).number == 0


@pytest.mark.parametrize(
    "values",
    [
        np.array([], dtype=np.int64),
        np.array([5, -3, 2**40, 2**40 + 1]),
        np.array([[0.0, 3.0], [100.0, 3.0], [5000.0, 2.0]]),
        np.array([0.5, np.nan, np.inf, -1.0]),
        np.array([True, False]),
        np.array([1e9, 2e9], dtype=np.float32),
    ],
)
def test_arrays_come_back_as_they_were(values: np.ndarray) -> None:
    back = unpack(pack(values))
    assert (back.dtype, back.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"no zlib",
        zlib.compress(b"\xc1"),
        zlib.compress(msgspec.msgpack.encode(msgspec.msgpack.Ext(1, msgspec.msgpack.encode(["Popen", "id"])))),
        zlib.compress(msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b""))),
        zlib.compress(
            msgspec.msgpack.encode(msgspec.msgpack.Ext(2, msgspec.msgpack.encode([0, "|O", [1], b"12345678"])))
        ),
    ],
)
def test_other_bytes_are_refused(wrong: bytes) -> None:
    with pytest.raises(Damaged):
        unpack(wrong)
