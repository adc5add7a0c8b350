"""Starts a training job that is slow for a reason, lets perfdoctor find the reason, and ends the job."""

import signal
import subprocess
import sys
from pathlib import Path

import jobs

NAME = "slow_preprocessing_workers"
REPORT = Path("perfdoctor-report.html")
# Far longer than the demonstration takes: the job ends with it.
JOB_SECONDS = 300.0


def main() -> int:
    """Runs the demonstration.

    Returns:
        Exit status of ``perfdoctor attach``.
    """
    # A terminated demonstration ends its job too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    (example,) = jobs.examples([NAME])
    say(f"Starting examples/{NAME}/train.py, a job that is slow for a reason, and waiting for its first step ...")
    with jobs.running(example, "bottleneck", JOB_SECONDS) as job:
        job.wait_until_ready()
        say(f"It trains, as process {job.pid}. Watching it for 15 seconds:\n")
        say(f"    perfdoctor attach {job.pid} --report {REPORT}\n")
        command = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid), "--report", str(REPORT)]
        status = subprocess.run(command, check=False).returncode
    if status == 0:
        say(f"\nThe job is ended. The report is in {REPORT}: open it in a browser.")
        say(f"What was wrong with it, and the fix: examples/{NAME}/README.md")
    return status


def say(text: str) -> None:
    """Prints at once, in a pipe too."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
