"""Counting a job's steps from outside, in a real process; and that nothing of it stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.process_memory import Memory, mappings
from perfdoctor.probes.readers.symbols import Elf
from perfdoctor.probes.steps import StepsProbe
from perfdoctor.recording.schema import CountedCall, Sample, Unavailable
from perfdoctor.timeline.counted_steps import read_counted
from tests.processes.attaching import until
from tests.processes.watching import NOBODY, Watched, complaints, looked

SCRIPT = """
import sys, threading, time
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizers = [torch.optim.SGD([one], lr=0.1) for one in model.parameters()]
running = threading.Event()
def train(steps, passes=1):
    for _ in range(steps):
        for _ in range(passes):
            model(torch.ones(2, 8)).sum().backward()
        with torch.profiler.record_function("Optimizer.stepped"), torch.profiler.record_function("short"):
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
def train_beside():
    while running.is_set():
        train(1)
        time.sleep(0.002)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
ENGINE = "_ZN5torch8autograd6Engine7executeE"


class Trainer:
    """A process with torch that runs what it is told, line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.pid, self._process = process.pid, process

    def run(self, line: str) -> None:
        """Returns when it has done so."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "done\n"


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    if (found := StepsProbe().check(Candidate(None))).state != "works":
        pytest.skip(f"steps cannot be counted here: {found.reason}")
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        started = Trainer(process)
        started.run("train(1)")
        yield started
        process.kill()


@contextmanager
def counting(pid: int) -> Iterator[StepsProbe]:
    probe = StepsProbe()
    assert list(probe.open(Watched(pid, torch=True))) == []
    yield probe
    list(probe.close())


def told(samples: list[Sample]) -> str:
    """The first letters of what was called."""
    assert complaints(samples) == []
    return "".join(call.what[0] for call in sorted(calls(samples)))


def calls(samples: list[Sample]) -> list[CountedCall]:
    return [sample for sample in samples if isinstance(sample, CountedCall)]


def test_backward_passes_and_optimizer_steps_are_counted(trainer: Trainer) -> None:
    with counting(trainer.pid) as probe:
        trainer.run("train(3)")
        assert told(looked(probe)) == "boo" * 3
        trainer.run("train(2, passes=3)")
        made = looked(probe)
        assert told(made) == "bbboo" * 2
        trainer.run("torch.func.grad(lambda x: (x * x).sum())(torch.ones(3))")
        assert told(looked(probe)) == "b"
        trainer.run("torch.ones(3) + 1")
        assert looked(probe) == []
    assert len(read_counted(calls(made))[trainer.pid].steps.all) == 1


def test_another_thread_than_the_first_may_train(trainer: Trainer) -> None:
    trainer.run("running.set(); threading.Thread(target=train_beside).start()")
    with counting(trainer.pid) as probe:
        assert until(lambda: bool(calls(looked(probe))))
    trainer.run("running.clear()")


def test_nothing_stays_in_the_job(trainer: Trainer) -> None:
    """Neither when the counting ends, nor when whoever counts is killed."""
    code = beginning_of_backward(trainer.pid)
    with counting(trainer.pid):
        assert beginning_of_backward(trainer.pid) != code
    assert beginning_of_backward(trainer.pid) == code
    counter = (
        "import time\nfrom perfdoctor.probes.steps import StepsProbe\nfrom tests.processes.watching import Watched\n"
        f"probe = StepsProbe()\nlist(probe.open(Watched({trainer.pid}, torch=True)))\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", counter]) as process:
        assert until(lambda: beginning_of_backward(trainer.pid) != code)
        process.send_signal(signal.SIGKILL)
    assert until(lambda: beginning_of_backward(trainer.pid) == code)
    trainer.run("train(1)")


def beginning_of_backward(pid: int) -> bytes:
    """The first bytes of the function that runs a backward pass, as they are in a process."""
    folder = Path(f"/proc/{pid}")
    library = next(one for one in mappings(folder, only_code=True) if one.path.endswith("/libtorch_cpu.so"))
    with Elf(Path(library.path)) as elf:
        found = elf.find(ENGINE, beginning=True)
        assert found is not None
        offset = elf.offset_of(found[0])
    assert offset is not None
    memory = Memory(folder)
    try:
        return memory.read(library.start + offset - library.offset, 8)
    finally:
        memory.close()


@pytest.mark.skipif(os.getuid() != 0, reason="who is not root has no right to lose")
def test_who_may_not_count_says_why() -> None:
    code = (
        "import os\nfrom perfdoctor.probes.steps import StepsProbe\nfrom tests.processes.watching import Watched\n"
        f"os.setresuid({NOBODY}, {NOBODY}, {NOBODY})\nprint(list(StepsProbe().open(Watched(1, torch=True))))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = Unavailable("steps", "Only root may count calls in a process (CAP_PERFMON).", "run perfdoctor as root")
    assert str(expected) in said.stdout, said.stderr
