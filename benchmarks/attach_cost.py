"""What it costs to be watched: the pace of the examples alone and watched, and the watcher's CPU and memory.

Each example runs once. Windows alone and watched alternate, first with ``perfdoctor attach`` and then with
``py-spy record`` at its defaults, so that a drift of the machine meets all of them. A watched window lasts as
long as the command does, start and analysis included; what ``attach`` costs while it looks is told besides.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import jobs
from documents import fill
from watching_costs import COLUMNS, PACE_TARGET, Cost, Row, Window, document, medians

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording

LOOK_S = 1.0  # between two looks at a command's memory, which cost the job some of its cores too


def memory_of(process: psutil.Process) -> int:
    """Resident bytes of a process and its descendants, 0 where they are gone."""
    total = 0
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for member in family:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Waits for the end of a process for some time."""
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def watched(job: jobs.Job, command: list[str], timeout_s: float) -> Window:
    """Runs a command beside a job until it ends; raises RuntimeError if it fails."""
    before, begin, start = resource.getrusage(resource.RUSAGE_CHILDREN), job.progress(), time.monotonic()
    memory = 0
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        while not ended(process, LOOK_S):
            memory = max(memory, memory_of(psutil.Process(process.pid)))
            if time.monotonic() - start > timeout_s:
                process.kill()
        out.seek(0)
        text = out.read().decode(errors="replace")
    end, after = job.progress(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0 or end[0] == begin[0]:
        raise RuntimeError(f"{command[-1]} ended with {process.returncode}: {text.strip()[-300:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Window((end[0] - begin[0]) / (end[1] - begin[1]), time.monotonic() - start, cpu, memory)


def attached(job: jobs.Job, seconds: float) -> Window:
    """A window with ``perfdoctor attach``."""
    with tempfile.TemporaryDirectory() as folder:
        target, kept = Path(folder, "diagnosis.json"), Path(folder, "run.perfdoctor")
        command = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid), "--duration", str(seconds)]
        window = watched(job, [*command, "--json", str(target), "--recording", str(kept)], seconds + 120)
        window.watching_cores = json.loads(target.read_text())["overhead"].get("cpu_cores")
        start_ns, end_ns = span_of(kept)
        laps = job.laps(start_ns, min(end_ns, start_ns + int(seconds * NS_PER_S)))
        window.watching_pace = 1 / statistics.mean(laps) if laps else 0.0
        window.report_s = written_s(target) - end_ns / NS_PER_S
        return window


def written_s(path: Path) -> float:
    """When a file was written, on the recordings' clock."""
    return time.monotonic() - (time.time() - path.stat().st_mtime)


def span_of(path: Path) -> tuple[int, int]:
    """When a recording began and ended."""
    recording = Recording.open(path)
    span = recording.start_ns, recording.end_ns
    recording.close()
    return span


def py_spied(job: jobs.Job, seconds: float) -> Window:
    """A window with ``py-spy record`` on the same processes, at its own rate, pausing them as it does."""
    with tempfile.TemporaryDirectory() as folder:
        py_spy = str(Path(sys.executable).with_name("py-spy"))
        target = ["--subprocesses", "--pid", str(job.pid), "--duration", str(round(seconds))]
        output = ["--format", "raw", "--output", str(Path(folder, "stacks"))]
        return watched(job, [py_spy, "record", *target, *output], seconds + 120)


def cost_of(example: jobs.Example, rounds: int, seconds: float) -> Cost:
    """Windows alone, attached, alone, attached …, and the same with py-spy, in one run of an example."""
    cost = Cost(example.name)
    if not jobs.wait_until_quiet():
        cost.note = "the machine was not quiet"
    with jobs.running(example, "bottleneck", 4 * rounds * (seconds + 30) + 120) as job:
        job.wait_until_ready()
        time.sleep(jobs.WARM_UP_S)
        try:
            cost.alone.append(job.pace(seconds))
            for _ in range(rounds):
                cost.attach.append(attached(job, seconds))
                cost.alone.append(job.pace(seconds))
            spied_from = len(cost.alone) - 1
            spied = Cost(example.name, alone=cost.alone[spied_from:])
            for _ in range(rounds):
                spied.py_spy.append(py_spied(job, seconds))
                spied.alone.append(job.pace(seconds))
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            cost.note = str(problem).replace("\n", " ")
            return cost
    cost.py_spy = spied.py_spy
    cost.alone = [*cost.alone[: spied_from + 1], *spied.alone[1:]]
    return cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these examples only")
    parser.add_argument("--rounds", type=int, default=2, help="watched windows of each kind (default 2)")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a window (default 15)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/overhead.md")
    arguments = parser.parse_args()
    jobs.end_with_finally()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled once, not at each start
    named = jobs.examples(arguments.only)
    skipped = jobs.left_out(named)
    chosen = [example for example in named if example.name not in skipped]
    rows = []
    print(f"{'':27}" + "  ".join(COLUMNS), flush=True)
    for example in chosen:
        cost = cost_of(example, arguments.rounds, arguments.seconds)
        if not cost.py_spy:
            print(f"{example.name:27}{cost.note}", flush=True)
            continue
        rows.append(Row.of(cost))
        cells = [f"{text:>{len(column)}}" for text, column in zip(rows[-1].numbers(), COLUMNS, strict=True)]
        print(f"{example.name:27}" + "  ".join(cells) + f"  {cost.note}", flush=True)
    if not rows:
        return 1
    watching, attach, py_spy = medians(rows)
    print(f"\nmedian pace: {attach:.3f} in all, {watching:.3f} watching (target {PACE_TARGET}), {py_spy:.3f} py-spy")
    if arguments.write:
        fill("overhead.md", "attach", document(rows, arguments.rounds, arguments.seconds, jobs.machine()))
    return 0 if attach >= PACE_TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
