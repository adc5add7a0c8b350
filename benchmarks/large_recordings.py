"""How long a recording of a large job takes to be analysed: 15 s of 8 ranks with 16 workers each and 3,000 threads.

No machine here can run such a job, so the recording is built as the probes would have written it: threads that train at
20 Hz, the others as they take turns. What the threads do is drawn at random.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from perfdoctor.analysis.from_recording import examine
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import (
    CODE_FREQUENCY,
    CodeSample,
    InterpreterSample,
    Sample,
    ThreadSample,
    ThreadSeen,
)
from tests.builders import jobs

SECONDS = 15.0
CORES = 192
TARGET_S = 10.0
TRAINS_HZ, WORKERS_HZ = 20.0, 3.0
LOADS = (Frame("/job/train.py", "main", 7), Frame("/v/torch/utils/data/dataloader.py", "_next_data", 700))
TRAINS = (Frame("/job/train.py", "main", 9), jobs.MODULE)


def thread(tid: int, pid: int, name: str, hertz: float, runs: float, call: str = "futex") -> Iterator[Sample]:
    """A thread that runs for this part of the time, in spells."""
    run_ns = 0
    yield ThreadSeen(jobs.START, tid, pid, name)
    for tick in range(max(1, int(SECONDS * hertz))):
        runs_now = random.random() < runs
        run_ns += int(runs_now / hertz * 1e9)
        state, where = ("R", None) if runs_now else ("S", call)
        yield ThreadSample(jobs.at(tick / hertz), tid, state, where, "", run_ns, run_ns // 50, tick, 0, 0, 0)


def rank(number: int, workers: int, helpers: int, busy: int) -> Iterator[Sample]:
    """A trainer with its workers, busy threads and threads that sleep all the time."""
    pid = 10_000 * (number + 1)
    yield from jobs.process(pid, parent=2, RANK=str(number), WORLD_SIZE="8", LOCAL_RANK=str(number))
    yield from thread(pid, pid, "python", TRAINS_HZ, 0.6)
    yield from thread(pid + 1, pid, "pt_autograd_0", TRAINS_HZ, 0.3)
    yield from jobs.named(pid, pid, pid)
    yield from jobs.stacks(pid, LOADS, TRAINS, TRAINS, ident=pid, times=int(SECONDS * TRAINS_HZ))
    for tick in range(int(SECONDS * TRAINS_HZ)):
        yield InterpreterSample(jobs.at(tick / TRAINS_HZ), pid, random.choice((0, pid)), collecting=False)
    for tick in range(int(SECONDS * CODE_FREQUENCY * 0.6)):
        yield CodeSample(jobs.at(tick / CODE_FREQUENCY / 0.6), pid, "libtorch_cpu.so", random.randrange(1000), "")
    for helper in range(helpers):
        yield from thread(pid + 10 + helper, pid, "python", WORKERS_HZ if helper < busy else 0.1, 0.5 * (helper < busy))
    for worker in range(workers):
        child = pid + 5000 + 30 * worker
        yield from jobs.process(child, parent=pid, forked=True)
        yield from thread(child, child, "pt_data_worker", WORKERS_HZ, 0.7, call="poll")
        for helper in range(helpers // workers):
            yield from thread(child + 1 + helper, child, "pt_data_worker", 0.1, 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=16, help="of each rank (default 16)")
    parser.add_argument("--helpers", type=int, default=190, help="threads of each trainer, and of its workers together")
    parser.add_argument("--busy", type=int, default=24, help="of a trainer's, those that compute (default 24)")
    arguments = parser.parse_args()
    random.seed(7)
    samples = [
        sample
        for number in range(arguments.ranks)
        for sample in rank(number, arguments.workers, arguments.helpers, arguments.busy)
    ]
    samples += jobs.process(2, uses_torch=False)
    samples += jobs.readings("job", "usable_cores", *[CORES] * 4, every_s=5.0)
    with tempfile.TemporaryDirectory() as folder:
        file = jobs.write(Path(folder, "large.perfdoctor"), samples, cores=str(CORES), reachable_cores=str(CORES))
        begun, used = time.monotonic(), time.process_time()
        with Recording.open(file) as recording:
            diagnosis = examine(recording)
        took, used = time.monotonic() - begun, time.process_time() - used
    threads = sum(isinstance(sample, ThreadSeen) for sample in samples)
    print(f"{threads} threads, {len(samples)} samples: {took:.1f} s, {used:.1f} s of CPU (target {TARGET_S:g})")
    print(diagnosis.verdict.cause, f"{diagnosis.verdict.share or 0:.2f}")
    return int(took > TARGET_S)


if __name__ == "__main__":
    sys.exit(main())
