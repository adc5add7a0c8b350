"""Dumps of torch's Flight Recorder of real ranks: asked for while they hang, left behind, and read as a folder."""

import os
import time
import zlib
from pathlib import Path

from perfdoctor.capture.flight_recorder import flight_dumps
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import FlightDump, Unavailable
from tests.builders.flight_dumps import ALL, call, written
from tests.processes.attaching import is_a_diagnosis, job, needs_root, perfdoctor
from tests.processes.stuck import planted

SLEEPER = ("python3", "-c", "import os, sys, time; print('ready', os.getpid(), flush=True); time.sleep(600)")


def test_ranks_in_two_groups_are_told_apart_by_dumps_that_they_are_asked_for(tmp_path: Path) -> None:
    """From outside both are in all_reduce at the same line."""
    recording = tmp_path / "job.perfdoctor"
    asking = ("--duration", "7", "--flight-recorder", "--recording", recording, "--json", tmp_path / "a.json")
    began = time.time()
    with planted("other_group") as pid:
        answer = perfdoctor("attach", pid, *asking, "--lang", "en")
    most_s = time.time() - began
    assert answer.status == 0, answer.err
    is_a_diagnosis(answer.told)
    stuck = answer.told["stuck"]
    assert (stuck["kind"], stuck["rank"], stuck["ranks"]) == ("collective_mismatch", None, [0, 1])
    halts = [*stuck["chain"], *stuck["waiting"]]
    assert [(halt["collective"], halt["sequence"], halt["tensors"]) for halt in halts] == [
        ("all_reduce", 1, "Float [8]"),
        ("all_reduce", 1, "Float [8]"),
    ]
    assert len({halt["group"] for halt in halts}) == 2
    _read_as_a_folder(recording, tmp_path / "dumps", most_s)


def _read_as_a_folder(recording: Path, folder: Path, most_s: float) -> None:
    """The same dumps by themselves, as if they had been written two minutes later; the job ran for so long at most."""
    folder.mkdir()
    with Recording.open(recording) as opened:
        rows = opened.rows(FlightDump)
    assert sorted(row.rank for row in rows) == [0, 1]
    for row in rows:
        file = folder / f"trace_{row.rank}"
        file.write_bytes(zlib.decompress(row.data))
        os.utime(file, ns=(row.written_ns, row.written_ns + 120 * NS_PER_S))
    answer = perfdoctor("analyze", folder, "--json", folder.parent / "b.json", "--lang", "en")
    assert answer.status == 0, answer.err
    is_a_diagnosis(answer.told)
    assert (answer.told["stuck"]["kind"], answer.told["stuck"]["ranks"]) == ("collective_mismatch", [0, 1])
    assert 120 <= answer.told["stuck"]["since_s"] <= 120 + most_s


def test_a_dump_that_a_rank_has_left_is_read_and_one_of_an_earlier_run_is_not(tmp_path: Path) -> None:
    environment = {**os.environ, "RANK": "3", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/nccl_trace_rank_"}
    data = written([call(1)], {ALL: (0, 1, 2, 3)})
    with job(*SLEEPER, env=environment) as rank:
        started = {rank.pid: now_ns()}
        file = tmp_path / "nccl_trace_rank_3"
        file.write_bytes(data)
        (found,) = flight_dumps(started, ask=False)
        assert isinstance(found, FlightDump)
        assert (found.rank, zlib.decompress(found.data)) == (3, data)
        assert abs(found.at_ns - now_ns()) < 60 * NS_PER_S
        os.utime(file, (time.time() - 3600, time.time() - 3600))
        assert list(flight_dumps(started, ask=False)) == []


@needs_root
def test_a_dump_is_found_where_the_rank_finds_it(tmp_path: Path) -> None:
    """In a container, here one that is only a root of its own, a link leads to a file of the container's."""
    (tmp_path / "data").write_bytes(b"calls")
    (tmp_path / "dump_0").symlink_to("/data")
    program = "import os, sys; os.chroot(sys.argv[1]); print('ready', os.getpid(), flush=True); sys.stdin.read()"
    environment = {**os.environ, "RANK": "0", "TORCH_FR_DUMP_TEMP_FILE": "/dump_"}
    with job("python3", "-c", program, tmp_path, env=environment) as rank:
        (found,) = flight_dumps({rank.pid: 0}, ask=False)
    assert isinstance(found, FlightDump)
    assert zlib.decompress(found.data) == b"calls"


def test_a_rank_is_asked_at_the_socket_that_it_sees(tmp_path: Path) -> None:
    program = """
import http.server, os, socketserver
class Server(socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("", 0)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ping fr_trace_json" if self.path == "/handler/" else b"calls")
    do_POST = do_GET
with Server("server", Handler) as server:
    print("ready", os.getpid(), flush=True)
    server.serve_forever()
"""
    environment = {**os.environ, "RANK": "0", "TORCH_WORKER_SERVER_SOCKET": "server"}
    with job("python3", "-c", program, env=environment, cwd=tmp_path) as rank:
        (found,) = flight_dumps({rank.pid: now_ns()}, ask=True)
    assert isinstance(found, FlightDump)
    assert (found.rank, zlib.decompress(found.data)) == (0, b"calls")


def test_a_rank_is_asked_through_its_named_pipe(tmp_path: Path) -> None:
    """Whoever reads the pipe writes the dump, as torch's watchdog does (ProcessGroupNCCL's DumpPipe)."""
    program = (
        "import os, sys; pipe, data, dump = sys.argv[1:]; os.mkfifo(pipe); "
        "end = os.open(pipe, os.O_RDWR); print('ready', os.getpid(), flush=True); os.read(end, 1); "
        "os.replace(data, dump); os.utime(dump); sys.stdin.read()"
    )
    (tmp_path / "data").write_bytes(written([call(1)], {ALL: (0,)}))
    environment = {
        **os.environ,
        "RANK": "0",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_",
    }
    files = (f"{tmp_path}/pipe_0.pipe", f"{tmp_path}/data", f"{tmp_path}/dump_0")
    with job("python3", "-c", program, *files, env=environment) as rank:
        started = {rank.pid: 0}
        assert list(flight_dumps(started, ask=False)) == []
        (found,) = flight_dumps(started, ask=True)
    assert isinstance(found, FlightDump)
    assert found.rank == 0


def test_a_job_that_gives_no_dumps_is_said_to(tmp_path: Path) -> None:
    with job(*SLEEPER, env={**os.environ, "RANK": "0", "XDG_CACHE_HOME": str(tmp_path)}) as rank:
        started = {rank.pid: now_ns()}
        (said,) = flight_dumps(started, ask=True)
    assert isinstance(said, Unavailable)
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in said.enable
