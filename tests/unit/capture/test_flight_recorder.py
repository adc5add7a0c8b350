"""Which dumps of torch's Flight Recorder are taken in; the rank is this process."""

import os
import zlib
from pathlib import Path

import pytest

from perfdoctor.capture import flight_recorder, variables
from perfdoctor.capture.flight_recorder import flight_dumps
from perfdoctor.recording.schema import FlightDump
from tests.unit.knowledge.test_launchers import AGENT, rank

STARTED = {os.getpid(): 0}


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the dump of this process lies, which has become rank 3 of an MPI job."""
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/dump_")
    return tmp_path / "dump_3"


def test_a_rank_is_known_by_the_environment_that_it_has_now(dump: Path) -> None:
    dump.write_bytes(b"calls")
    (found,) = flight_dumps(STARTED, ask=False)
    assert isinstance(found, FlightDump)
    assert (found.rank, zlib.decompress(found.data)) == (3, b"calls")


def test_a_pipe_in_the_place_of_a_dump_is_not_waited_for(dump: Path) -> None:
    os.mkfifo(dump)
    assert list(flight_dumps(STARTED, ask=False)) == []


def test_the_task_that_starts_the_ranks_does_not_stand_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    environments = {1: AGENT, 2: AGENT | rank(0), 3: AGENT | rank(1), 4: AGENT | rank(1)}
    monkeypatch.setattr(variables, "environment_of", environments.get)
    assert [(one.pid, one.number) for one in flight_recorder._ranks({1: 0, 2: 1, 3: 2, 4: 3})] == [(2, 0), (3, 1)]
