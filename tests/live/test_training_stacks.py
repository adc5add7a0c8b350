"""Stacks that perfdoctor reads itself, against what the interpreters of this machine say of their own."""

import json
import sys
import time
import zlib
from pathlib import Path

import pytest

from perfdoctor.probes.readers.cpython import Layouts
from perfdoctor.probes.readers.cpython_stacks import knows
from perfdoctor.probes.readers.training_stacks import TrainingStacks
from perfdoctor.probes.stacks import StacksProbe
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import LoaderSample, PythonThread, StackSegment, Unavailable
from perfdoctor.timeline.stacks import Stacks
from tests.live.test_probe_interpreter import VERSIONS, interpreter
from tests.processes.attaching import job, sampling, until
from tests.processes.watching import Watched

pytestmark = pytest.mark.alone

# The frames begin in one line and are at work in another, and one is a generator's.
DEEP = """
import json, os, sys, time, traceback
def written():
    def rest():
        stack = [(f.filename, f.name, f.lineno) for f in traceback.extract_stack()]
        print(json.dumps(stack), flush=True)
        print("ready", os.getpid(), flush=True)
        while True:
            time.sleep(
                1000)
    yield (
        rest())
class Caf\u00e9:
    def \u5716(self, depth):
        if depth == 0:
            for _ in written():
                pass
        return (self
                .\u5716(depth - 1))
Caf\u00e9().\u5716(3)
"""
CROWD = """
import os, threading, time
for _ in range(600):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
def computes():
    while True:
        sum(range(1000))
threading.Thread(target=computes, daemon=True).start()
def trains():
    print("ready", os.getpid(), flush=True)
    while True:
        time.sleep(0.001)
trains()
"""
# As torch's: the method that gives a batch, of an object that counts them.
ITERATOR = """
import os, time
class Iterator:
    def __init__(self):
        self._sampler, self._num_yielded = None, 0
{more}
    def __next__(self):
        if self._num_yielded == 4321:
            print("ready", os.getpid(), flush=True)
            time.sleep(1000)
        self._num_yielded += 1
iterator = Iterator()
while True:
    next(iterator)
"""
LOADS = """
import os, time, torch
from torch.utils.data import DataLoader
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, number):
        time.sleep(0.02)
        return torch.zeros(1)
print("ready", os.getpid(), flush=True)
while True:
    for batch in DataLoader(Samples(), batch_size=2):
        pass
"""
KNOWN = [version for version in VERSIONS if version != "3.14"]


@pytest.mark.parametrize("version", KNOWN)
@pytest.mark.parametrize("more", ["        pass", "        self.__dict__['kept'] = 1"])
def test_an_iterator_says_how_many_batches_it_has_given(version: str, more: str, tmp_path: Path) -> None:
    script = tmp_path / "torch/utils/data/dataloader.py"
    script.parent.mkdir(parents=True)
    script.write_text(ITERATOR.format(more=more))
    major, minor = map(int, version.split("."))
    with job(interpreter(version), str(script)) as process:
        time.sleep(0.3)
        stacks = TrainingStacks(process.pid, (major, minor), Layouts())
        (found,) = [one for one in stacks.sample(now_ns()) if isinstance(one, LoaderSample)]
        stacks.close()
    assert found.given == 4321


def test_iterators_of_torch_are_followed() -> None:
    with job(sys.executable, "-c", LOADS) as process:
        stacks = TrainingStacks(process.pid, sys.version_info[:2], Layouts())
        given = []
        for _ in range(30):
            time.sleep(0.1)
            given += [one.given for one in stacks.sample(now_ns()) if isinstance(one, LoaderSample)]
        stacks.close()
    assert set(given) == {0, 1, 2}


@pytest.mark.parametrize("version", KNOWN)
def test_a_stack_is_what_the_interpreter_says(version: str, tmp_path: Path) -> None:
    script = tmp_path / "deep.py"
    script.write_text(DEEP, encoding="utf-8")
    python = interpreter(version)
    major, minor = map(int, version.split("."))
    assert knows((major, minor))
    with job(python, str(script)) as process:
        time.sleep(0.3)
        stacks = TrainingStacks(process.pid, (major, minor), Layouts())
        (named,) = [one for one in stacks.sample(now_ns()) if isinstance(one, PythonThread)][:1]
        segment = stacks.segment(now_ns())
        stacks.close()
        said = process.lines[0]
    assert segment is not None
    events = json.loads(zlib.decompress(segment.trace))
    seen = [(event["args"]["filename"], event["name"].rpartition(".")[2], event["args"]["line"]) for event in events]
    expected = [tuple(frame) for frame in json.loads(said)]
    assert [frame[:2] for frame in seen] == [frame[:2] for frame in expected]
    # The innermost frame has gone on since then, to its last lines.
    assert [frame[2] for frame in seen[:-1]] == [frame[2] for frame in expected[:-1]]
    assert seen[-1][2] in (9, 10)
    assert named.tid == process.pid


def test_with_hundreds_of_threads_those_are_sampled_that_matter() -> None:
    with job(sys.executable, "-c", CROWD) as process:
        watched = Watched(process.pid, torch=True)
        probe = StacksProbe()
        samples = list(probe.open(watched))
        for _ in range(40):
            time.sleep(probe.period_s)
            samples += probe.sample(now_ns())
        assert not sampling(process.pid), "py-spy looks at every thread"
        samples += probe.close()
    assert not [one for one in samples if isinstance(one, Unavailable)]
    segments = [one for one in samples if isinstance(one, StackSegment)]
    stacks = Stacks.read(segments)
    main = stacks.of_main(process.pid)
    assert main is not None
    functions = {stacks.frames[number][-1].function for number in main.stacks.tolist() if number >= 0}
    assert functions == {"trains"}
    others = {stacks.frames[number][-1].function for one in stacks.of_others(process.pid) for number in one.stacks}
    assert "computes" in others
    assert len({one.tid for one in samples if isinstance(one, PythonThread)}) == 602
    assert until(lambda: not sampling(process.pid))
