"""Whoever is at the other end of what a job waits to read from is found, and judged by what it does."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfdoctor.capture.peers import Peers
from perfdoctor.probes.readers.channel_ends import awaited_ends, serves
from tests.processes.attaching import job, perfdoctor, until

pytestmark = pytest.mark.alone


@contextmanager
def reading(descriptor: int) -> Iterator[int]:
    """A process that waits to read from a descriptor of ours."""
    command = [sys.executable, "-c", f"import os; print(0, flush=True); os.read({descriptor}, 1)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(descriptor,)) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        try:
            yield reader.pid
        finally:
            reader.kill()


def connected(kind: str, folder: Path) -> tuple[int, int]:
    """Both ends of a channel of a kind: where to read, and where to write."""
    if kind == "pipe":
        return os.pipe()
    if kind == "named pipe":
        os.mkfifo(folder / "pipe")
        writer = os.open(folder / "pipe", os.O_RDWR)
        return os.open(folder / "pipe", os.O_RDONLY), writer
    if kind == "unix":
        one, other = socket.socketpair()
        return one.detach(), other.detach()
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one.detach(), server.accept()[0].detach()


@pytest.mark.parametrize("kind", ["pipe", "named pipe", "unix", "tcp"])
def test_the_other_end_of_what_is_waited_for_is_ours(kind: str, tmp_path: Path) -> None:
    ends = connected(kind, tmp_path)
    with reading(ends[0]) as pid:
        assert until(lambda: list(awaited_ends(pid)))
        (end,) = awaited_ends(pid)
        assert end.kind == kind.split()[-1]
        assert serves(end, os.getpid())
        assert not serves(end, pid), "it only reads"
    for descriptor in ends:
        os.close(descriptor)


def test_a_search_goes_over_all_processes_and_asks_each_once() -> None:
    ends = os.pipe()
    writer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=(ends[1],))
    with writer, reading(ends[0]) as pid:
        started_it = Peers()
        assert not any(started_it.search([pid], {pid, os.getpid()}) for _ in range(20)), "of the job's own tree"
        peers = Peers()
        assert until(lambda: peers.search([pid], {pid}))
        assert peers.found == {writer.pid: (pid, "pipe")}
        assert not any(peers.search([pid], {pid}) for _ in range(5))
        writer.kill()
    for descriptor in ends:
        os.close(descriptor)


FEEDING = """
import hashlib, sys
with open(sys.argv[1], "wb", buffering=0) as pipe:
    block = b"x"
    while True:
        for _ in range(400): block = hashlib.sha512(block * 200).digest()
        pipe.write(block * 256)
"""
FED = """
import sys, torch
model = torch.nn.Linear(256, 10)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with open(sys.argv[1], "rb", buffering=0) as pipe:
    for step in range(1_000_000):
        taken = b""
        while len(taken) < 64 * 256: taken += pipe.read(64 * 256 - len(taken))
        batch = torch.frombuffer(bytearray(taken), dtype=torch.uint8).float().reshape(64, 256) / 255
        optimizer.zero_grad(); model(batch).mean().backward(); optimizer.step()
        if step == 3: print("ready 0", flush=True)
"""


def test_a_job_that_is_fed_slowly_waits_for_who_feeds_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([sys.executable, "-c", FEEDING, str(pipe)], start_new_session=True) as feeder:
        try:
            with job(sys.executable, "-c", FED, str(pipe)) as fed:
                answer = perfdoctor("attach", fed.pid, "--duration", "5", "--json", tmp_path / "told.json")
        finally:
            feeder.kill()
    assert answer.told["verdict"]["cause"] == "cpu.input_preprocessing", answer.told["breakdown"]
    assert "io.storage_read" not in {part["cause"] for part in answer.told["breakdown"]}
    (finding, *_) = answer.told["findings"]
    assert any(f"({feeder.pid})" in fix["title"] for fix in finding["fixes"])
