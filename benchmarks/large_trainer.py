"""A training loop in the company of thousands of threads and of many processes, which mostly sleep."""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import common


def start_python_threads(count: int, wake_s: float | None) -> None:
    """Threads of Python that wait for an event, or wake up now and then to find nothing to do."""
    never = threading.Event()

    def wait() -> None:
        while not never.wait(wake_s):
            pass

    threading.stack_size(1 << 18)
    for _ in range(count):
        threading.Thread(target=wait, daemon=True).start()


def start_native_threads(count: int) -> None:
    """Threads that Python does not know, as those of libraries are; each sleeps in the C library."""
    library = ctypes.CDLL(None)
    handle = ctypes.c_ulong()
    for _ in range(count):
        if library.pthread_create(ctypes.byref(handle), None, library.sleep, ctypes.c_void_p(1_000_000)):
            raise RuntimeError("no more threads can be started")


def start_workers(count: int, threads: int) -> list[int]:
    """Forked processes, as loader workers are, each with threads of its own."""
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            start_native_threads(threads)
            while os.getppid() > 1:
                time.sleep(0.05)
            os._exit(0)
        pids.append(pid)
    return pids


def train(run: common.Run, rest_s: float) -> None:
    """Steps of some 10 ms on one core, with rests as of a job that waits for its GPU."""
    # Here, not above: what starts the ranks does without.
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = [(torch.randn(256, 512), torch.randint(0, 2, (256,))) for _ in range(16)]
    for batch, targets in run.steps(data):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(rest_s)


def start_ranks(count: int) -> None:
    """Starts this program again as so many ranks, and ends when they have."""
    options = [option for option in sys.argv[1:] if not option.startswith("--ranks")]
    ranks = [
        subprocess.Popen([sys.executable, __file__, *options], env={**os.environ, "RANK": str(rank)})
        for rank in range(count)
    ]
    try:
        for rank in ranks:
            rank.wait()
    finally:
        for rank in ranks:
            rank.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--python", type=int, default=0, help="waiting threads of Python")
    parser.add_argument("--waking", type=int, default=0, help="threads of Python that wake up five times a second")
    parser.add_argument("--native", type=int, default=0, help="sleeping threads of the C library")
    parser.add_argument("--workers", type=int, default=0, help="forked processes that mostly sleep")
    parser.add_argument("--threads-each", type=int, default=0, help="sleeping threads of each of them")
    parser.add_argument("--rest", type=float, default=0.0, help="seconds in which the trainer sleeps after each step")
    parser.add_argument("--ranks", type=int, default=0, help="so many of all that, started by a process without torch")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.ranks:
        start_ranks(arguments.ranks)
        return
    workers = start_workers(arguments.workers, arguments.threads_each)
    start_native_threads(arguments.native)
    start_python_threads(arguments.python, None)
    start_python_threads(arguments.waking, 0.2)
    common_arguments = argparse.Namespace(
        state="fixed", seconds=arguments.seconds, diagnose=None, json=None, recording=None, slower=0.0
    )
    try:
        train(common.Run(common_arguments), arguments.rest)
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    main()
