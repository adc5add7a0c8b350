"""``with diagnose():`` in the cells of a real notebook kernel, and `attach` to a kernel while a cell trains."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes.attaching import ENVIRONMENT, perfdoctor

pytestmark = pytest.mark.alone

pytest.importorskip("ipykernel", reason="ipykernel is not installed")
manager = pytest.importorskip("jupyter_client.manager", reason="jupyter_client is not installed")

CAUSE = "cpu.input_preprocessing"
MODEL = """
import time
import torch
from perfdoctor import diagnose

class Digits(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        return torch.rand(64), index % 10

torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(Digits(), 16)
model, criterion = torch.nn.Linear(64, 10), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(batch):
    images, targets = batch
    optimizer.zero_grad()
    criterion(model(images), targets).backward()
    optimizer.step()

wishes = {"steps": 60, "report": "out.html", "json": "told.json"}
"""
# Goes on until perfdoctor has detached.
AROUND_A_STEP = """
steps, before = 0, torch.nn.Module.__call__
while steps < 20 or torch.nn.Module.__call__ is not before:
    for batch in loader:
        with diagnose(**wishes) as doctor:
            train(batch)
        steps += 1
"""
AROUND_THE_LOOP = """
before = torch.nn.Module.__call__
with diagnose(**wishes) as doctor:
    while torch.nn.Module.__call__ is not before:
        for batch in loader:
            train(batch)
"""
FOR_SOME_TIME = """
until = time.monotonic() + 30
while time.monotonic() < until:
    for batch in loader:
        train(batch)
"""
WAIT = """
for _ in range(600):
    if doctor.diagnosis is not None:
        break
    time.sleep(0.1)
print(doctor.diagnosis["verdict"]["cause"], doctor.diagnosis["steps"]["count"])
"""


@dataclass
class Cell:
    """What a cell showed."""

    out: str = ""
    err: str = ""
    error: str = ""
    html: str = ""


@dataclass
class Kernel:
    """A kernel, and what runs cells in it."""

    pid: int
    client: Any

    def run(self, code: str) -> Cell:
        """Runs a cell to its end."""
        cell = Cell()

        def shows(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "error":
                cell.error = f"{content['ename']}: {content['evalue']}"
            elif message["msg_type"] == "execute_result":
                cell.html += content["data"].get("text/html", "")
            elif message["msg_type"] == "stream" and content["name"] == "stdout":
                cell.out += content["text"]
            elif message["msg_type"] == "stream":
                cell.err += content["text"]

        self.client.execute_interactive(code, output_hook=shows, timeout=120, allow_stdin=False)
        return cell


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    one = manager.KernelManager(kernel_name="python3", connection_file=str(tmp_path / "kernel.json"))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    one.start_kernel(cwd=str(tmp_path), env={**ENVIRONMENT, "IPYTHONDIR": str(tmp_path / "ipython")}, **quiet)
    client = one.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield Kernel(one.provisioner.pid, client)
    finally:
        client.stop_channels()
        one.shutdown_kernel(now=True)
        one.cleanup_resources()


def test_a_step_at_a_time_and_attached_to_later(kernel: Kernel, tmp_path: Path) -> None:
    assert kernel.run(MODEL).error == ""
    trained = kernel.run(AROUND_A_STEP)
    assert trained.error == ""
    waited = kernel.run(WAIT)
    assert (waited.error, waited.out) == ("", f"{CAUSE} 60\n")
    # The kernel passes on what is written to its stderr, to the cell that runs at that moment.
    assert "preparing the input" in trained.err + waited.err
    assert (tmp_path / "out.html").exists()
    # It has detached: the same cell once more is as if perfdoctor had never been there.
    assert kernel.run(AROUND_A_STEP) == Cell()
    kernel.client.execute(FOR_SOME_TIME)
    told = tmp_path / "attached.json"
    answer = perfdoctor("attach", kernel.pid, "--duration", 4, "--json", told)
    assert answer.status == 0, answer.err
    assert answer.told["verdict"]["cause"] == CAUSE


def test_around_the_loop_in_a_captured_cell(kernel: Kernel, tmp_path: Path) -> None:
    assert kernel.run(MODEL).error == ""
    assert kernel.run("%%capture shown\n" + AROUND_THE_LOOP).error == ""
    waited = kernel.run(WAIT)
    assert (waited.error, waited.out) == ("", f"{CAUSE} 60\n")
    assert (tmp_path / "told.json").exists()
    assert "preparing the input" in kernel.run("doctor").html
    assert "preparing the input" in kernel.run("import perfdoctor; perfdoctor.load('told.json')").html
