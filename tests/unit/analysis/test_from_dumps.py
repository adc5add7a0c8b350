"""A folder of dumps of torch's Flight Recorder becomes a diagnosis."""

import os
from pathlib import Path

import pytest

from perfdoctor.commands.analyze import diagnose
from perfdoctor.errors import PerfDoctorError
from perfdoctor.results import stuck as kinds
from tests.builders.flight_dumps import ALL, WRITTEN_NS, call, written

GROUPS = {ALL: (0, 1, 2)}
DONE, OPEN = call(1, ended=True), call(2)


def leave(folder: Path, name: str, data: bytes) -> None:
    file = folder / name
    file.write_bytes(data)
    os.utime(file, ns=(WRITTEN_NS, WRITTEN_NS))


def test_the_rank_that_did_not_come_is_the_verdict(tmp_path: Path) -> None:
    for rank, calls in enumerate([[DONE, OPEN], [DONE], [DONE, OPEN]]):
        leave(tmp_path, f"comm_lib_trace_rank_{rank}", written(calls, GROUPS))
    (tmp_path / "job.log").write_text("rank 1 says nothing")
    found = diagnose([tmp_path])
    assert found.stuck is not None
    assert (found.stuck.kind, found.stuck.rank) == (kinds.RANK_ELSEWHERE, 1)
    assert (found.verdict.bottleneck, found.verdict.straggler_rank) == (None, 1)
    assert sum(share.share for share in found.breakdown) == 1


def test_a_damaged_dump_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    leave(tmp_path, "trace_0", written([DONE, OPEN], GROUPS))
    leave(tmp_path, "trace_1", written([DONE, OPEN], GROUPS)[:200])
    found = diagnose([tmp_path])
    assert [item.reason for item in found.not_examined if "trace_1 cannot be read" in str(item.reason)]
    assert found.stuck is not None
    assert (found.stuck.kind, found.stuck.ranks) == (kinds.UNWATCHED_RANK, (1, 2))


def test_dumps_in_which_everything_has_ended_tell_no_hang(tmp_path: Path) -> None:
    leave(tmp_path, "trace_0", written([DONE], GROUPS))
    found = diagnose([tmp_path])
    assert found.stuck is None
    assert found.verdict.missing is not None


def test_dumps_of_two_runs_are_refused(tmp_path: Path) -> None:
    leave(tmp_path, "first_0", written([DONE], GROUPS))
    leave(tmp_path, "second_0", written([DONE], GROUPS))
    with pytest.raises(PerfDoctorError, match="two dumps of rank 0"):
        diagnose([tmp_path])


def test_nothing_but_damaged_dumps_is_an_error(tmp_path: Path) -> None:
    leave(tmp_path, "trace_0", written([DONE], GROUPS)[:100])
    with pytest.raises(PerfDoctorError, match="can be read"):
        diagnose([tmp_path])
