"""What other tools name in the same jobs, and what each costs them: one table for docs/peers.md.

Each tool is used as its own documentation asks for, for some 15 seconds of each job:

- ``perfdoctor attach``, ``py-spy record --subprocesses`` on the running job;
- ``scalene run --cpu-only`` in place of Python;
- ``traceml run`` in place of Python, and ``trace_step(model)`` around each step (``peers_inside.py`` puts it there);
- ``torch.profiler`` with a schedule and ``step()`` after each step (likewise).

``pip install py-spy scalene traceml-ai`` beside perfdoctor first; a tool that is missing is left out. Pace is steps per
second with the tool over steps per second without, in two runs of the job. Run it on an idle machine:
``python benchmarks/peers.py --write``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import jobs
from documents import fill

INSIDE = str(Path(__file__).with_name("peers_inside.py"))
WATCHED_S = 15.0
CHOSEN = (
    "too_few_workers",
    "slow_store",
    "tiny_operators",
    "frequent_checkpoints",
    "noisy_neighbours",
    "too_many_threads",
)


@dataclass(frozen=True)
class Answer:
    """What a tool says of a job.

    Attributes:
        named: in the tool's own words where it has words, else what stands on top of its table.
        pace: of the job beside it, over the pace alone.
    """

    named: str
    pace: float


Tool = Callable[[jobs.Example, Path], tuple[str, float]]


def beside(name: str) -> str | None:
    """A program beside this Python."""
    path = Path(sys.executable).with_name(name)
    return str(path) if path.is_file() else None


@contextmanager
def running(example: jobs.Example, through: tuple[str, ...] = (), seconds: float = 600.0) -> Iterator[jobs.Job]:
    """An example with its bottleneck, warm."""
    script = jobs.EXAMPLES / example.name / "train.py"
    with jobs.started(script, "bottleneck", "--seconds", str(seconds), through=through) as job:
        job.wait_until_ready()
        yield job


def alone(example: jobs.Example) -> float:
    """Steps per second without any tool."""
    with running(example) as job:
        job.pace(jobs.WARM_UP_S)
        return job.pace(WATCHED_S)


def watched(example: jobs.Example, command: list[str]) -> float:
    """Steps per second while a command that watches it from outside runs; ``PID`` in it is the job's."""
    with running(example) as job:
        job.pace(jobs.WARM_UP_S)
        watching = [str(job.pid) if part == "PID" else part for part in command]
        begin = job.progress()
        done = subprocess.run(watching, capture_output=True, text=True, check=False)
        end = job.progress()
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-300:])
        return (end[0] - begin[0]) / (end[1] - begin[1])


def within(example: jobs.Example, *through: str) -> float:
    """Steps per second of a job that a tool starts itself, which then ends by itself."""
    with running(example, through, jobs.WARM_UP_S + WATCHED_S) as job:
        job.pace(jobs.WARM_UP_S)
        pace = job.pace(WATCHED_S - 2)
        job.process.wait(120)
        return pace


def perfdoctor(example: jobs.Example, folder: Path) -> tuple[str, float]:
    """The verdict, and the first thing to do."""
    report = folder / "diagnosis.json"
    command = [sys.executable, "-m", "perfdoctor", "attach", "PID", "--duration", str(WATCHED_S), "--json", str(report)]
    pace = watched(example, command)
    said = json.loads(report.read_text())
    fixes = [fix["title"] for finding in said["findings"] for fix in finding["fixes"]]
    return " → ".join([said["verdict"]["summary"], *fixes[:1]]), pace


def py_spy(example: jobs.Example, folder: Path) -> tuple[str, float]:
    """The line on top of most stacks, of all processes and threads."""
    raw = folder / "stacks.txt"
    options = ["--subprocesses", "--duration", str(int(WATCHED_S)), "--format", "raw", "--output", str(raw)]
    pace = watched(example, [beside("py-spy") or "", "record", "--pid", "PID", *options])
    tops: Counter[str] = Counter()
    for line in raw.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        tops[stack.rpartition(";")[2]] += int(count)
    (top, count), *_ = tops.most_common(1)
    return f"`{top}`: {count / tops.total():.0%} of the samples", pace


def scalene(example: jobs.Example, folder: Path) -> tuple[str, float]:
    """The line with the most CPU time."""
    profile = folder / "scalene.json"
    through = (sys.executable, "-m", "scalene", "run", "--cpu-only", "-o", str(profile))
    pace = within(example, *through)
    files = json.loads(profile.read_text())["files"]
    parts = ("n_cpu_percent_python", "n_cpu_percent_c", "n_sys_percent")
    lines = [
        (*(line[part] for part in parts), f"{Path(name).name}:{line['lineno']}", line["line"].strip())
        for name, file in files.items()
        for line in file["lines"]
    ]
    python, native, system, place, code = max(lines, key=lambda line: sum(line[:3]))
    return f"{place} `{code}`: Python {python:.0f} %, native {native:.0f} %, system {system:.0f} %", pace


def traceml(example: jobs.Example, folder: Path) -> tuple[str, float]:
    """Its primary diagnosis."""
    through = (beside("traceml") or "", "run", "--logs-dir", str(folder), INSIDE, "--args", "traceml", str(folder))
    pace = within(example, *through)
    (summary,) = folder.rglob("final_summary.json")
    primary = json.loads(summary.read_text())["primary_diagnosis"]
    return ": ".join(str(primary[name]) for name in ("status", "summary") if primary.get(name)), pace


def torch_profiler(example: jobs.Example, folder: Path) -> tuple[str, float]:
    """The operator with the most CPU time of its own."""
    pace = within(example, sys.executable, INSIDE, "profiler", str(folder))
    name, share = json.loads((folder / "profiler.json").read_text())
    return f"`{name}`: {share:.0%} of the CPU time", pace


TOOLS: dict[str, tuple[Tool, str]] = {
    "perfdoctor": (perfdoctor, "perfdoctor"),
    "py-spy": (py_spy, "py-spy"),
    "scalene": (scalene, "scalene"),
    "TraceML": (traceml, "traceml-ai"),
    "torch.profiler": (torch_profiler, "torch"),
}


def ask(tool: Tool, example: jobs.Example, usual: float) -> Answer:
    """What a tool says, or why it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            named, pace = tool(example, Path(folder))
        except (RuntimeError, ValueError, OSError, LookupError, subprocess.TimeoutExpired) as problem:
            return Answer(f"nothing: {str(problem).strip()[-200:]}", 0.0)
    here = f"{jobs.EXAMPLES.parent}/"
    return Answer(" ".join(named.split()).replace("|", "/").replace(here, ""), pace / usual)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=CHOSEN, metavar="NAME", help="these examples")
    parser.add_argument("--write", action="store_true", help="write the table into docs/peers.md")
    options = parser.parse_args()
    jobs.end_with_finally()
    tools, versions = {}, []
    for name, (tool, package) in TOOLS.items():
        try:
            versions.append(f"{name} {importlib.metadata.version(package)}")
            tools[name] = tool
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed here, and is left out.", file=sys.stderr)
    rows = ["| job | tool | names | pace beside it |", "|---|---|---|---|"]
    for example in jobs.examples(list(options.only)):
        jobs.wait_until_quiet()
        usual = alone(example)
        for name, tool in tools.items():
            answer = ask(tool, example, usual)
            pace = f"{answer.pace:.2f}" if answer.pace else "-"
            rows.append(f"| {example.name} | {name} | {answer.named} | {pace} |")
            print(rows[-1], flush=True)
    if options.write:
        fill("peers.md", "rows", "\n".join([*rows, "", f"{', '.join(versions)}; measured on {jobs.machine()}."]))


if __name__ == "__main__":
    main()
