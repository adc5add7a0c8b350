"""What the examples share: their arguments, the loop's clock, and real data without a download."""

import argparse
import io
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

Batch = TypeVar("Batch")

WARM_UP_S = 1.0
PROGRESS = "EXAMPLE_PROGRESS"
"""Environment variable: a file in which the job keeps its number of steps and the time of the last one."""
STOP = "EXAMPLE_STOP"
"""Environment variable: a file through which rank 0 tells the other ranks at which step to stop."""
COUNTER = struct.Struct("qq")
"""Number of steps, and when the last one ended (CLOCK_MONOTONIC nanoseconds)."""
LAP = struct.Struct("q")
"""After the counter: when each of the latest ``LAPS`` steps ended."""
LAPS = 1 << 17
PROGRESS_BYTES = COUNTER.size + LAPS * LAP.size


class Run:
    """One run of an example, with its bottleneck or ``fixed``, for so many seconds.

    Args:
        arguments: the command line, as ``start`` reads it.

    Attributes:
        bottleneck: it is left in.
        rank: this process's rank, 0 where there is only one.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.bottleneck = arguments.state == "bottleneck"
        self.seconds = arguments.seconds
        self._diagnosed = arguments.diagnose
        self._files = {"json": arguments.json, "recording": arguments.recording}
        self._slower = arguments.slower
        self._began = time.monotonic()
        self.rank = int(os.environ.get("RANK", "0"))
        self._count = 0
        self._first = self._warm_time = self._warm_count = 0.0
        self._lead = 1
        self._stop_at: int | None = None
        self._counter = _map_counter() if self.rank == 0 else None

    def steps(self, batches: Iterable[Batch], lead: int = 1) -> Iterator[Batch]:
        """Yields batches, epoch after epoch, until the time is over; then prints the throughput.

        A step lasts from one batch to the next. The first step and a second of warm-up are left out.

        Args:
            batches: a loader, or any other source of batches; it is started anew when it is exhausted.
            lead: how many steps one rank can be ahead of another.
        """
        self._lead = lead
        going = True
        with self._watched("loop"):
            while going:
                for batch in batches:
                    with self._watched("step"):
                        yield batch
                    going = self._step_done()
                    if not going:
                        break
        if self.rank == 0:
            elapsed = time.monotonic() - self._warm_time
            print(f"throughput: {(self._count - self._warm_count) / elapsed:.3f} steps/s", flush=True)

    def _watched(self, what: str) -> AbstractContextManager[object]:
        """``diagnose()`` around what the user asked it to be around."""
        if what != self._diagnosed:
            return nullcontext()
        from perfdoctor import diagnose

        return diagnose(report=None, **self._files)

    def _step_done(self) -> bool:
        now = time.monotonic()
        until = now + self._slower * (now - self._began)
        while now < until:
            now = time.monotonic()
        self._began = now
        self._count += 1
        if self._count == 1:
            self._first = self._warm_time = now
            self._warm_count = 1
            if self.rank == 0:
                print("ready", flush=True)
        stop = self._must_stop(now)
        # A run that is over before it is warm counts all steps but the first.
        if not stop and self._warm_time == self._first and now - self._first >= WARM_UP_S:
            self._warm_time, self._warm_count = now, self._count
        if self._counter is not None:
            now_ns = int(now * 1e9)
            LAP.pack_into(self._counter, COUNTER.size + self._count % LAPS * LAP.size, now_ns)
            COUNTER.pack_into(self._counter, 0, self._count, now_ns)
        return not stop

    def _must_stop(self, now: float) -> bool:
        """All ranks stop after the same step: none may be left alone in a collective."""
        if STOP not in os.environ:
            return now - self._first >= self.seconds
        stop = Path(os.environ[STOP])
        if self._stop_at is None and self.rank == 0 and now - self._first >= self.seconds:
            self._stop_at = self._count + self._lead + 1  # ahead of every rank
            stop.with_suffix(".new").write_text(str(self._stop_at))
            stop.with_suffix(".new").rename(stop)
        elif self._stop_at is None and self.rank != 0 and stop.exists():
            self._stop_at = int(stop.read_text())
        return self._stop_at is not None and self._count >= self._stop_at


def start(description: str | None) -> Run:
    """Reads the command line, and lets SIGTERM end the job through its ``finally`` blocks."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("state", nargs="?", choices=("bottleneck", "fixed"), default="bottleneck")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so many seconds (default 60)")
    parser.add_argument("--diagnose", choices=("step", "loop"), help="put perfdoctor's diagnose() around this")
    parser.add_argument("--slower", type=float, default=0.0, help="lengthen each step by this fraction (default 0)")
    parser.add_argument("--json", help="the file in which diagnose() writes its JSON report")
    parser.add_argument("--recording", help="the file in which it keeps its recording")
    arguments = parser.parse_args()
    trainer = os.getpid()

    def leave(signum: int, _frame: object) -> None:
        if os.getpid() != trainer:  # a forked worker has nothing of its own to tidy up
            os._exit(128 + signum)
        signal.signal(signum, signal.SIG_IGN)
        sys.exit(128 + signum)

    signal.signal(signal.SIGTERM, leave)
    return Run(arguments)


def under_torchrun(ranks: int = 2) -> None:
    """Starts the running script again as so many ranks, unless it is one of them already."""
    if "RANK" in os.environ:
        return
    stop = Path(tempfile.gettempdir(), f"example-stop-{os.getpid()}")
    stop.unlink(missing_ok=True)
    environment = {"OMP_NUM_THREADS": "1", **os.environ, STOP: str(stop)}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    os.execve(sys.executable, [sys.executable, *launcher, *sys.argv], environment)


def leave_group() -> None:
    """Ends a rank after training.

    Now and then gloo's threads make the interpreter's own shutdown abort ("terminate called without an active
    exception", seen with torch 2.13), and torchrun then calls the whole job failed. So this does without it.
    """
    import torch.distributed as dist

    dist.barrier()
    if STOP in os.environ and dist.get_rank() == 0:  # only now have all ranks read it
        Path(os.environ[STOP]).unlink(missing_ok=True)
    sys.stdout.flush()
    os._exit(0)


def _map_counter() -> mmap.mmap | None:
    path = os.environ.get(PROGRESS)
    if not path:
        return None
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), PROGRESS_BYTES)


# Real data. NumPy and scikit-learn are imported late, so that a launcher starts fast.


def photographs() -> list:  # type: ignore[type-arg]
    """Two photographs, a Chinese palace and a flower, as uint8 arrays of 427 x 640 x 3."""
    from sklearn.datasets import load_sample_images

    return list(load_sample_images().images)


def crops(count: int, size: int, seed: int = 0):  # type: ignore[no-untyped-def]
    """Square pieces of the photographs, and which of the two each comes from.

    Returns:
        uint8 array (count, size, size, 3) and int64 array (count,).
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    photos = photographs()
    labels = rng.integers(0, len(photos), count)
    pieces = np.empty((count, size, size, 3), np.uint8)
    for i, label in enumerate(labels):
        height, width, _ = photos[label].shape
        top, left = rng.integers(0, height - size + 1), rng.integers(0, width - size + 1)
        pieces[i] = photos[label][top : top + size, left : left + size]
    return pieces, labels.astype(np.int64)


def jpegs(pieces, quality: int = 90) -> list[bytes]:  # type: ignore[no-untyped-def]
    """Images as JPEG files in memory."""
    from PIL import Image

    files = []
    for piece in pieces:
        buffer = io.BytesIO()
        Image.fromarray(piece).save(buffer, "JPEG", quality=quality)
        files.append(buffer.getvalue())
    return files


def digits():  # type: ignore[no-untyped-def]
    """Handwritten digits: float32 tensor (1797, 64) between 0 and 1, and int64 tensor (1797,)."""
    import torch
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return torch.tensor(bunch.data / 16, dtype=torch.float32), torch.tensor(bunch.target)


def shuffled(*columns, size: int):  # type: ignore[no-untyped-def]
    """Random batches of tensors that are held in memory, without end."""
    import torch

    while True:
        order = torch.randperm(len(columns[0]))
        for begin in range(0, len(order) - size + 1, size):
            rows = order[begin : begin + size]
            yield tuple(column[rows] for column in columns)
