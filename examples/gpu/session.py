"""The session with a GPU: looks at all GPU examples in every way, checks the verdicts, and keeps fixtures for tests.

Each example takes about a minute and a half. What an example told is written before the next one starts, so a session
that is cut off keeps what it has, and a later one with ``--only`` adds to it. Everything is written under ``--into``:
the page docs/accuracy-gpu.md, and a folder for each example in tests/fixtures/gpu.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs
import keeping
import looking
import page

ROOT = jobs.EXAMPLES.parent
DEVICE, SPEED = "PERFDOCTOR_EXAMPLE_DEVICE", "PERFDOCTOR_EXAMPLE_SPEED"


def main() -> int:
    arguments = parse()
    jobs.end_with_finally()
    dry = arguments.device == "cpu"
    if dry:
        os.environ[DEVICE] = "cpu"
    reason = jobs.why_no_gpu()
    if reason:
        sys.exit(f"{reason}; --device cpu tries the script without one")
    chosen = [e for e in jobs.examples([f"gpu/{name}" for name in arguments.only]) if e.needs_gpu]
    # One size for all jobs, so that a job with its bottleneck and its fix do not differ in it.
    speed = ask("accelerator", "speed")
    plan = looking.Plan(arguments.seconds, arguments.duration, {"OMP_NUM_THREADS": "4", SPEED: speed})
    about = {"device": "a CPU" if dry else ask("comparing", "gpu_name"), "dry": dry, "speed": speed}
    print(f"{about['device']}, {float(speed):.0f} TFLOP/s; up to {arguments.minutes:g} minutes", flush=True)
    timed = check_timer(arguments)
    results = run(chosen, plan, about, arguments)
    if not results:
        return 1
    print("\n" + "\n".join(page.totals(results)) + f"\nwritten: {arguments.into / page.PAGE}")
    return 0 if timed and all(page.right(told, way) for told in results for way in looking.WAYS) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these examples only: launch_bound …")
    parser.add_argument("--minutes", type=float, default=25.0, help="start no example that may end later (default 25)")
    parser.add_argument("--seconds", type=float, default=6.0, help="to measure a pace (default 6)")
    parser.add_argument("--duration", type=float, default=12.0, help="to attach (default 12)")
    parser.add_argument(
        "--into", type=Path, default=ROOT / "build" / "gpu-session", help="where to write (default build/gpu-session)"
    )
    parser.add_argument("--details", type=Path, metavar="FOLDER", help="keep recordings, traces and diagnoses here")
    parser.add_argument(
        "--device", choices=("gpu", "cpu"), default="gpu", help="cpu: a dry run, which tries the script only"
    )
    arguments = parser.parse_args()
    if arguments.device == "cpu" and arguments.into.resolve() == ROOT:
        parser.error("a dry run is no result: write it elsewhere")
    return arguments


def check_timer(arguments: argparse.Namespace) -> bool:
    """Holds perfdoctor's device times against events by hand, unless single examples were asked for."""
    if arguments.only:
        return True
    command = [sys.executable, str(Path(__file__).with_name("timing.py"))]
    command += ["--json", str(arguments.into.resolve() / "docs" / "timer-gpu.json")]
    try:
        return subprocess.run(command, timeout=300, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print("timer: no result in 300 s", flush=True)
        return False


def run(
    chosen: list[jobs.Example], plan: looking.Plan, about: dict[str, Any], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Looks at one example after the other, while the time lasts."""
    begin, longest, results = time.monotonic(), 0.0, []
    for number, example in enumerate(chosen):
        started = time.monotonic()
        if started - begin + longest > arguments.minutes * 60:
            left = " ".join(one.name.removeprefix("gpu/") for one in chosen[number:])
            print(f"no time left; go on with --only {left}", flush=True)
            break
        told = one(example, plan, about, arguments)
        results.append(told)
        took = time.monotonic() - started
        longest = max(longest, took)
        print(line(told, took), flush=True)
    return results


def one(
    example: jobs.Example, plan: looking.Plan, about: dict[str, Any], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Looks at one example, and writes what it told."""
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.details.resolve() / example.name if arguments.details else Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for left_over in work.iterdir():
            left_over.unlink()
        told = {**about, **looking.look(example, plan, work)}
        keeping.keep(told, work, arguments.into)
        page.write(arguments.into)
    return told


def line(told: dict[str, Any], took: float) -> str:
    """One example as a line on the terminal."""
    said = [
        f"{way} {told.get(way, {}).get('cause') or told.get(way, {}).get('note', 'no verdict')}" for way in looking.WAYS
    ]
    marks = "".join("+" if page.right(told, way) else "-" for way in looking.WAYS)
    share = "-" if told.get("true_share") is None else f"{told['true_share']:.2f}"
    differing = [row["reading"] for row in told["compared"] if not row.get("agrees", True)]
    differ = f"; readings differ: {', '.join(differing)}" if differing else ""
    return f"{marks} {told['example']:22}{told['expected']:26}true {share:5} {took:4.0f} s  {'; '.join(said)}{differ}"


def ask(module: str, function: str) -> str:
    """What a function of a module here says, in a process of its own: this one must not be a neighbour on the GPU."""
    command = [sys.executable, "-c", f"import {module}; print({module}.{function}())"]
    folder = Path(__file__).resolve().parent
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout.splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
