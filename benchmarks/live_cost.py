"""What a live view costs on top of `perfdoctor attach`: CPU of all its processes, the job's pace, and late samples.

Windows alone, attached and attached with --live take turns in one run of an example. A live view is drawn on a
pseudo-terminal of 110 by 40. What both start and compute at the end is in neither: cores are those of a long window
less those of a short one.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pexpect

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import jobs

SIZE = (40, 110)


@dataclass
class Window:
    """One run of perfdoctor: CPU seconds of all its processes, how many samples came late, and the job's pace."""

    cpu_s: float
    late: float
    pace: float


def watched(job: jobs.Job, seconds: float, *live: str) -> Window:
    """Attaches for some seconds, on a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "a.json")
        words = ["-m", "perfdoctor", "attach", str(job.pid), "--duration", str(seconds), "--json", str(told), *live]
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), job.progress()
        program = pexpect.spawn(sys.executable, words, dimensions=SIZE, timeout=seconds + 120)
        program.expect(pexpect.EOF)
        program.wait()
        end, after = job.progress(), resource.getrusage(resource.RUSAGE_CHILDREN)
        overhead = json.loads(told.read_text())["overhead"]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Window(cpu_s, overhead["late_ticks"] / overhead["ticks"], (end[0] - begin[0]) / (end[1] - begin[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=["sound_training", "slow_preprocessing_workers"])
    parser.add_argument(
        "--seconds", type=float, nargs=2, default=(10.0, 40.0), help="the short window and the long one"
    )
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    short_s, long_s = arguments.seconds
    for example in (one for one in jobs.examples() if one.name in arguments.only):
        found: dict[str, list[tuple[float, float, float]]] = {"attach": [], "attach --live": []}
        with jobs.running(example, "bottleneck", 900) as job:
            job.wait_until_ready()
            time.sleep(jobs.WARM_UP_S)
            for _ in range(arguments.rounds):
                for name, live in (("attach", ()), ("attach --live", ("--live",))):
                    alone = job.pace(short_s)
                    brief, long = watched(job, short_s, *live), watched(job, long_s, *live)
                    cores = (long.cpu_s - brief.cpu_s) / (long_s - short_s)
                    found[name].append((cores, long.late, long.pace / alone))
        for name, rows in found.items():
            cores, late, pace = (statistics.median(column) for column in zip(*rows, strict=True))
            print(
                f"{example.name}: {name}: {cores:.3f} cores, {late:.1%} of the samples late, pace {pace:.3f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
