"""How often perfdoctor is right: attaches to the examples and compares with what a cure really gains.

For each example the sick job runs alone for a while, is then watched by ``perfdoctor attach``, and afterwards
the cured job runs alone. The true share of an illness is 1 - pace of the sick job / pace of the cured job.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs
import scoring
from scoring import Result

DOCUMENT = jobs.EXAMPLES.parent / "docs" / "accuracy.md"


def attach(job: jobs.Job, duration: float) -> tuple[dict[str, Any], float]:
    """Runs ``perfdoctor attach`` on a job; returns the diagnosis and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "diagnosis.json")
        command = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid)]
        begin = time.monotonic()
        done = subprocess.run(
            [*command, "--duration", str(duration), "--json", str(target)],
            capture_output=True, text=True, timeout=duration + 120, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"attach ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        return json.loads(target.read_text()), time.monotonic() - begin


def share_of(diagnosis: dict[str, Any], cause: str) -> float:
    """The share that a diagnosis gives to a cause: the verdict's, a finding's, or nothing."""
    verdict = diagnosis["verdict"]
    if verdict["cause"] == cause:
        return float(verdict["share"])
    return max((float(f["share"]) for f in diagnosis["findings"] if f["cause"] == cause), default=0.0)


def pace_of(example: jobs.Example, state: str, seconds: float) -> float:
    """Steps per second of an example that runs alone."""
    with jobs.running(example, state, seconds + 60) as job:
        job.wait_until_ready()
        time.sleep(jobs.WARM_UP_S)
        return job.pace(seconds)


def examine(example: jobs.Example, alone_s: float, attached_s: float) -> Result:
    """One run: sick alone, sick attached, cured alone."""
    result = Result(example)
    if not jobs.wait_until_quiet():
        result.note = "the machine was not quiet"
    try:
        with jobs.running(example, "sick", alone_s + attached_s + 120) as job:
            job.wait_until_ready()
            time.sleep(jobs.WARM_UP_S)
            sick = 0.0 if example.sound else job.pace(alone_s)
            attach_to(job, attached_s, result)
        if not example.sound:
            result.true_share = 1 - sick / pace_of(example, "cured", alone_s)
    except RuntimeError as problem:
        result.note = str(problem).replace("\n", " ")
    return result


def attach_to(job: jobs.Job, duration: float, result: Result) -> None:
    """Watches a job and enters what the diagnosis says; a failure is entered as the run's note."""
    try:
        result.said, took = attach(job, duration)
    except (RuntimeError, subprocess.TimeoutExpired) as problem:
        result.note = str(problem).replace("\n", " ")
        return
    verdict = result.said["verdict"]
    result.cause, result.straggler = verdict["cause"], verdict["straggler_rank"]
    result.confidence = float(verdict["confidence"])
    result.said_share = share_of(result.said, result.example.expected)
    result.extra_s = took - duration


def conditions(skipped: Mapping[str, str], arguments: argparse.Namespace) -> list[str]:
    """How it was measured, for the page."""
    return [
        *([f"Not run here: {', '.join(skipped)}.", ""] if skipped else []),
        f"Measured on {jobs.machine()}.",
        f"Runs of each: {arguments.repeats}; {arguments.duration:g} s of watching, {arguments.seconds:g} s of pace.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these examples only")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each example (default 1)")
    parser.add_argument("--seconds", type=float, default=12.0, help="to measure a pace (default 12)")
    parser.add_argument("--duration", type=float, default=15.0, help="to watch (default 15)")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.relative_to(jobs.EXAMPLES.parent)}")
    parser.add_argument("--details", type=Path, metavar="FOLDER", help="keep every diagnosis as JSON here")
    arguments = parser.parse_args()
    jobs.end_with_finally()
    chosen = jobs.examples(arguments.only)
    skipped = jobs.left_out(chosen)
    for reason in dict.fromkeys(skipped.values()):
        print(f"left out ({reason}): {', '.join(name for name in skipped if skipped[name] == reason)}")
    results = []
    print(scoring.HEADER, flush=True)
    for repeat in range(arguments.repeats):
        for example in (e for e in chosen if e.name not in skipped):
            result = examine(example, arguments.seconds, arguments.duration)
            results.append(result)
            print(scoring.line(result), flush=True)
            if arguments.details:
                arguments.details.mkdir(parents=True, exist_ok=True)
                name = f"{example.name.replace('/', '-')}-{repeat}.json"
                (arguments.details / name).write_text(json.dumps(result.said))
    if not results:
        return 1
    print("\n" + "\n".join(scoring.totals(results).lines()))
    if arguments.write:
        DOCUMENT.write_text(scoring.document(results, conditions(skipped, arguments)))
    return 0 if scoring.totals(results).good else 1


if __name__ == "__main__":
    sys.exit(main())
