"""Trains until it is told to end, in a way in which a job may be found when it is to be traced.

Prints "ready" and its pid once it trains, and at SIGUSR1 a line "state" with all that a trace could leave behind. Ends
at SIGTERM, as a script that saves a checkpoint does: with ``sys.exit``.
"""

# ruff: noqa: TID253
import argparse
import gc
import json
import os
import signal
import sys
import threading
import time
from multiprocessing import util

import torch
from torch import nn
from torch.autograd import profiler as autograd_profiler
from torch.utils.data import DataLoader, TensorDataset

ORIGINAL = autograd_profiler.profile._prepare_trace


def hooks():
    """Which profile and trace function this thread has."""
    return [type(one).__name__ for one in (sys.getprofile(), sys.gettrace())]


def state(training):
    """What is in this process that may come from outside."""
    gc.collect()
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "python_threads": len(sys._current_frames()),
        "wrapped": autograd_profiler.profile._prepare_trace is not ORIGINAL,
        "hooks": [hooks(), training.hooks],
        "profiling": bool(autograd_profiler._is_profiler_enabled),
        "objects": sum(type(one).__name__ in ("BriefTrace", "MainThreadCall") for one in gc.get_objects()),
        "after_fork": len(util._afterfork_registry),
        "names": sorted(vars(sys.modules["__main__"])),
        "modules": sorted(name for name in sys.modules if "perfdoctor" in name),
        "environment": sorted(os.environ),
        "files": sorted(os.path.realpath(f"/proc/self/fd/{file}") for file in os.listdir("/proc/self/fd")),
    }


class Training:
    """A small model, and its steps."""

    def __init__(self, pause_s, compiled):
        self.model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
        if compiled:
            self.model = torch.compile(self.model, backend="eager")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.pause_s = pause_s
        self.steps = 0
        self.slowest_s = 0.0
        self.hooks = hooks()

    def step(self, batch):
        begun = time.perf_counter()
        self.model(batch).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        self.hooks = hooks()
        if self.steps > 20:
            self.slowest_s = max(self.slowest_s, time.perf_counter() - begun)
        if self.steps == 20:
            os.write(1, f"ready {os.getpid()}\n".encode())
        time.sleep(self.pause_s)


def plain(training):
    batch = torch.rand(8, 64)
    while True:
        training.step(batch)


def epochs(training):
    """Loader workers are forked for every one of many short epochs."""
    loader = DataLoader(TensorDataset(torch.rand(64, 64)), batch_size=8, num_workers=1)
    while True:
        for (batch,) in loader:
            training.step(batch)


def in_thread(training):
    """The main thread only looks whether the training has ended."""
    trainer = threading.Thread(target=plain, args=(training,), daemon=True)
    trainer.start()
    while trainer.is_alive():
        time.sleep(0.05)


def in_thread_joined(training):
    """The main thread waits, and runs no Python code."""
    trainer = threading.Thread(target=plain, args=(training,), daemon=True)
    trainer.start()
    trainer.join()


def fetching(training):
    """Batches come from a loader."""
    loader = DataLoader(TensorDataset(torch.rand(64, 64)), batch_size=8)
    while True:
        for (batch,) in loader:
            training.step(batch)


def watched(training):
    """A coverage tool watches each call."""
    sys.setprofile(lambda *_: None)
    plain(training)


def long_call(training):
    """After some steps the main thread is in a call of C for longer than anybody waits, and then trains on."""
    batch = torch.rand(8, 64)
    for _ in range(30):
        training.step(batch)
    time.sleep(float(os.environ["LONG_CALL_S"]))
    os.write(1, f"returned {os.getpid()}\n".encode())
    plain(training)


def profiled(training):
    """Under a profiler of its own."""
    batch = torch.rand(8, 64)
    with torch.profiler.profile():
        for _ in range(20):
            training.step(batch)
        while True:
            time.sleep(0.1)


def profiled_later(training):
    """A profiler of its own begins when a file is there, traces some steps, and says how many it saw."""
    batch = torch.rand(8, 64)
    while not os.path.exists(os.environ["PROFILE_WHEN"]):
        training.step(batch)
    with torch.profiler.profile() as own:
        for _ in range(10):
            training.step(batch)
    seen = sum(event.name.startswith("Optimizer.step#") for event in own.events())
    os.write(1, f"profiled {seen}\n".encode())
    plain(training)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how", type=lambda name: globals()[name])
    parser.add_argument("--pause-ms", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for _ in range(options.threads):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    training = Training(options.pause_ms / 1000, options.compiled)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGUSR1, lambda *_: tell(training))
    options.how(training)


def tell(training):
    told = {**state(training), "steps": training.steps, "slowest_s": training.slowest_s}
    os.write(1, f"state {json.dumps(told)}\n".encode())
    training.slowest_s = 0.0


if __name__ == "__main__":
    main()
