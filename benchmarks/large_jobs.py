"""What it costs a large job to be watched: its pace with ``attach`` over its pace alone, and perfdoctor's own CPU time.

Each kind of crowd is a job of its own, in which windows alone and watched alternate.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import jobs

from perfdoctor.causes import CONTENTION
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Event, ProcessSeen, ThreadSample

TRAINER = Path(__file__).with_name("large_trainer.py")
CROWDS = {
    "alone": [],
    "800 Python threads": ["--python", "800"],
    "3,000 Python threads": ["--python", "3000"],
    "3,000 native threads": ["--native", "3000"],
    "3,000 threads, 200 waking": ["--native", "1400", "--python", "1400", "--waking", "200"],
    "128 workers, 3,000 threads": ["--workers", "128", "--threads-each", "20", "--python", "400"],
    "8 ranks, 128 workers, 3,000 threads": [
        "--ranks=8",
        "--workers",
        "16",
        "--threads-each",
        "16",
        "--native",
        "120",
        "--rest",
        "0.1",
    ],
}
COLUMNS = ("pace", "cores", "main, Hz", "contention", "slowest tick, ms", "report after, s")


def watched(job: jobs.Job, seconds: float) -> tuple[float, list[float], list[str]]:
    """The job's pace while it is watched, the figures of the other columns, and what the recording says was thinned."""
    with tempfile.TemporaryDirectory() as folder:
        target, kept = Path(folder, "diagnosis.json"), Path(folder, "run.perfdoctor")
        command = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid), "--duration", str(seconds)]
        subprocess.run([*command, "--json", str(target), "--recording", str(kept)], check=True, capture_output=True)
        written = time.monotonic() - (time.time() - target.stat().st_mtime)
        diagnosis = json.loads(target.read_text())
        with Recording.open(kept) as recording:
            start_ns, end_ns = recording.start_ns, recording.end_ns
            trainers = {
                process.pid for process in recording.rows(ProcessSeen) if process.uses_torch and not process.forked
            }
            times = [sample.time_ns for sample in recording.rows(ThreadSample) if sample.tid == min(trainers)]
            events = [f"{event.kind}: {event.text}" for event in recording.rows(Event) if event.kind != "stopped"]
        laps = job.laps(start_ns, min(end_ns, start_ns + int(seconds * NS_PER_S)))
        gaps = [(later - time_ns) / NS_PER_S for time_ns, later in pairwise(times)]
        shares = {row["cause"]: row["share"] for row in diagnosis["breakdown"]}
        figures = [
            diagnosis["overhead"]["cpu_cores"],
            1 / statistics.mean(gaps),
            shares.get(CONTENTION, 0.0),
            max(gaps) * 1000,
            written - end_ns / NS_PER_S,
        ]
        return 1 / statistics.mean(laps), figures, [diagnosis["verdict"]["summary"], *events]


def measure(options: Sequence[str], rounds: int, seconds: float) -> tuple[list[float], list[str]]:
    """Medians of the columns for one crowd, and what the last recording says was thinned."""
    found = []
    with jobs.started(TRAINER, *options) as job:
        job.wait_until_ready()
        time.sleep(jobs.WARM_UP_S)
        before = job.pace(seconds / 2)
        for _ in range(rounds):
            pace, figures, said = watched(job, seconds)
            after = job.pace(seconds / 2)
            found.append([pace / statistics.mean((before, after)), *figures])
            before = after
    return [statistics.median(column) for column in zip(*found, strict=True)], said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="crowds whose name begins so")
    parser.add_argument("--rounds", type=int, default=1, help="watched windows of each crowd (default 1)")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a window (default 15)")
    arguments = parser.parse_args()
    jobs.end_with_finally()
    print(f"{'':36}" + "  ".join(COLUMNS), flush=True)
    for name, options in CROWDS.items():
        if arguments.only and not name.startswith(tuple(arguments.only)):
            continue
        figures, said = measure(options, arguments.rounds, arguments.seconds)
        cells = [f"{figure:>{len(column)}.3g}" for figure, column in zip(figures, COLUMNS, strict=True)]
        print(f"{name:36}" + "  ".join(cells), *said, sep="\n    ", flush=True)
    print(f"\n{jobs.machine()}")


if __name__ == "__main__":
    main()
