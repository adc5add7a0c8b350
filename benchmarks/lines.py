"""How well it is known at which line a trainer is: jobs that write that down, watched from outside.

    python benchmarks/lines.py [--seconds 15] [--keep FOLDER]

For each kind of job: how long a step takes, which part of the time is told at another line than it was spent at, and
which with the sampled stacks alone, without the states of threads; then the parts, as they were and as they are told.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from perfdoctor.recording.reader import Recording
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline

HERE = Path(__file__).parent
KINDS = ("short", "medium", "long", "pause", "fsync", "program")
STARTING_S = 6.0
# How the statements of the job's loop begin, and the functions that are a part of their own.
STATEMENTS = {
    "inputs =": "prepare",
    "logits =": "forward",
    "loss =": "loss",
    "optimizer.zero_grad": "zero_grad",
    "torch.autograd.backward": "backward",
    "optimizer.step": "optimizer",
    "count(logits)": "count",
    "if step %": "wait",
    "wait()": "wait",
}
FUNCTIONS = frozenset(("prepare", "count", "wait"))


def watch(kind: str, folder: Path, seconds: float) -> None:
    """Starts a job, watches it and ends it."""
    job = subprocess.Popen([sys.executable, HERE / "lines_job.py", kind, folder / f"{kind}.json"])
    time.sleep(STARTING_S)
    attach = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid), "--duration", str(seconds)]
    attach += ["--recording", str(folder / f"{kind}.perfdoctor"), "--force"]
    subprocess.run(attach, stdout=subprocess.DEVNULL, cwd=HERE.parent)
    job.terminate()
    job.wait()


def part_of(line: str, source: list[str]) -> str:
    """The part of a step that a line of the job's own code belongs to, ``file:line function``; "" for none."""
    place, _, function = line.partition(" ")
    number = place.rpartition(":")[2]
    outermost = function.partition(".")[0]  # of a comprehension's
    if outermost in FUNCTIONS:
        return outermost
    text = source[int(number) - 1].strip() if number.isdigit() else ""
    return next((part for begins, part in STATEMENTS.items() if text.startswith(begins)), "")


def as_it_was(reached: list[tuple[int, str]], begin_ns: int, end_ns: int) -> Amounts[str]:
    """Nanoseconds of each part between two instants."""
    found: Amounts[str] = Amounts()
    for (start, part), (end, _) in pairwise(reached):
        found[part] += max(0, min(end, end_ns) - max(start, begin_ns))
    return found


def compare(kind: str, folder: Path) -> None:
    """Prints a row of the table and the parts of a job."""
    reached = json.loads((folder / f"{kind}.json").read_text())
    source = (HERE / "lines_job.py").read_text().splitlines()
    with Recording.open(folder / f"{kind}.perfdoctor") as recording:
        job = JobTimeline(recording)
        trainer = job.processes.trainers[0]
        main, stacks = job.threads.main(trainer.pid), job.stacks.of_main(trainer.pid)
        assert main is not None
        assert stacks is not None
        times = main.times_ns.tolist()
        told: Amounts[str] = Amounts()
        for before, at, after in zip(times, times[1:], times[2:], strict=False):
            told[part_of(job.observe(trainer, at).location.line, source)] += (after - before) / 2
        seen: Amounts[str] = Amounts()
        for number, amount in stacks.amounts_ns().items():
            seen[part_of(job.stacks.locations[number].line, source)] += amount
    was = as_it_was(reached, times[0], times[-1])
    steps = sum(part == "optimizer" and times[0] <= at < times[-1] for at, part in reached)
    step_ms = (times[-1] - times[0]) / 1e6 / steps
    print(f"| {kind} | {step_ms:.1f} | {apart(was, told):.3f} | {apart(was, seen):.3f} | {parts(was, told)} |")


def apart(one: Amounts[str], other: Amounts[str]) -> float:
    """The part of the time that lies elsewhere (total variation distance)."""
    first, second = one.fractions(), other.fractions()
    return sum(abs(first.get(part, 0.0) - second.get(part, 0.0)) for part in {*first, *second}) / 2


def parts(was: Amounts[str], told: Amounts[str]) -> str:
    """The largest parts, as they were and as they are told."""
    first, second = was.fractions(), told.fractions()
    largest = sorted(first, key=lambda part: -first[part])[:5]
    return ", ".join(f"{part} {first[part]:.2f}/{second.get(part, 0.0):.2f}" for part in largest)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--keep", type=Path, help="a folder for the recordings; those that lie there are only compared")
    arguments = parser.parse_args()
    print("| job | ms per step | told at another line | of stacks alone | parts, as they were/are told |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            if not (folder / f"{kind}.perfdoctor").exists():
                watch(kind, folder, arguments.seconds)
            compare(kind, folder)


if __name__ == "__main__":
    main()
