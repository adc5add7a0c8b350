"""What a live view, and answering Prometheus, cost on top of `perfdoctor attach`: the job's pace, CPU, late samples.

Windows alone and watched in each way take turns in one run of an example. A pace is that of the time in which the job
is watched, without perfdoctor's start and its analysis, by that of the windows alone before and after. CPU is what
perfdoctor says that it used meanwhile, all of its processes together. A live view is drawn on a pseudo-terminal of
110 by 40; Prometheus asks every 5 s.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pexpect

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import jobs

from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.reader import Recording

SIZE = (40, 110)
SCRAPED_EVERY_S = 5.0
WAYS = {"attach": (), "attach --live": ("--live",), "attach --metrics-port": ("--metrics-port", "0")}


@dataclass
class Window:
    """A job watched for some seconds: its pace meanwhile, and what perfdoctor says of itself."""

    pace: float
    cores: float
    late: float


def pace_between(job: jobs.Job, start_ns: int, end_ns: int) -> float:
    """Steps per second; 0 where there was none."""
    laps = job.laps(start_ns, end_ns)
    return 1 / statistics.mean(laps) if laps else 0.0


def alone(job: jobs.Job, seconds: float) -> float:
    """The pace of a job that nobody watches."""
    start_ns = now_ns()
    time.sleep(seconds)
    return pace_between(job, start_ns, now_ns())


def watched(job: jobs.Job, seconds: float, *how: str) -> Window:
    """Attaches for some seconds, on a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        told, kept = Path(folder, "a.json"), Path(folder, "a.perfdoctor")
        words = ["-m", "perfdoctor", "attach", str(job.pid), "--duration", str(seconds)]
        words += ["--json", str(told), "--recording", str(kept), *how]
        program = pexpect.spawn(sys.executable, words, dimensions=SIZE, timeout=seconds + 120)
        ended = threading.Event()
        if "--metrics-port" in how:
            program.expect(r"metrics at (\S+)\r")
            threading.Thread(target=scrape, args=(program.match[1].decode(), ended)).start()
        program.expect(pexpect.EOF)
        program.wait()
        ended.set()
        with Recording.open(kept) as recording:
            pace = pace_between(job, recording.start_ns, recording.start_ns + int(seconds * NS_PER_S))
        overhead = json.loads(told.read_text())["overhead"]
    return Window(pace, overhead["cpu_cores"], overhead["late_ticks"] / overhead["ticks"])


def scrape(url: str, ended: threading.Event) -> None:
    """Asks as Prometheus does, until nobody answers any more."""
    while not ended.wait(SCRAPED_EVERY_S):
        with suppress(OSError):  # it has just ended
            urllib.request.urlopen(url, timeout=SCRAPED_EVERY_S).read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=["sound_training", "slow_preprocessing_workers"])
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a window (default 10)")
    parser.add_argument("--rounds", type=int, default=3, help="windows of each kind (default 3)")
    arguments = parser.parse_args()
    for example in (one for one in jobs.examples() if one.name in arguments.only):
        found: dict[str, list[tuple[float, Window]]] = {way: [] for way in WAYS}
        with jobs.running(example, "bottleneck", 900) as job:
            job.wait_until_ready()
            time.sleep(jobs.WARM_UP_S)
            before = alone(job, arguments.seconds)
            for _ in range(arguments.rounds):
                for way, how in WAYS.items():
                    window = watched(job, arguments.seconds, *how)
                    after = alone(job, arguments.seconds)
                    found[way].append((window.pace / statistics.mean((before, after)), window))
                    before = after
        for way, rows in found.items():
            paces = [ratio for ratio, _ in rows]
            cores, late = (statistics.median(getattr(window, name) for _, window in rows) for name in ("cores", "late"))
            print(
                f"{example.name}: {way}: pace {statistics.median(paces):.3f} ({min(paces):.3f} to {max(paces):.3f}), "
                f"{cores:.3f} cores, {late:.1%} of the samples late",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
