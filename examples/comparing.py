"""How often ``perfdoctor compare`` is right: pairs of runs of the examples, half of them with a change of known size.

Each run is a job of its own, observed by ``diagnose()`` around its loop. Every second pair has the same job twice; in
the others each step of one of the runs is lengthened by 3 to 30 %. What became of a step, by the job's own clock, is
the truth: where loader workers catch up meanwhile, a longer step may cost less than was planted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs
import ways
from documents import fill

WAY = "loop"
LEAST, MOST = 0.03, 0.30
# A change that is larger must be found.
TO_FIND = 0.05
# Steps of some milliseconds to some hundreds, in one process and in two, with a loader and without.
JOBS = (
    *("sound_training", "slow_preprocessing_workers", "tiny_operators", "element_loops", "sound_ddp"),
    *("synced_logging", "slow_store", "collector_every_step", "sound_busy_workers", "short_epochs"),
)


@dataclass(frozen=True)
class Made:
    """Two runs that were observed.

    Attributes:
        number: of the pair; even ones are unchanged.
        planted: by which fraction each step was lengthened; below 0 where that was done before.
        before_s: mean length of a step by the job's own clock.
        after_s: likewise.
    """

    number: int
    example: str
    planted: float
    before_s: float
    after_s: float


@dataclass(frozen=True)
class Pair:
    """Two runs that were compared.

    Attributes:
        number: of the pair; even ones are unchanged.
        planted: by which fraction each step was lengthened; below 0 where that was done before.
        true: by which fraction a step takes longer, by the job's own clock.
        said: the same as compare has it.
        between: the ends of the interval of that; None where too little was watched to tell.
        answer: ``faster``, ``slower`` …
    """

    number: int
    example: str
    planted: float
    true: float
    said: float
    between: tuple[float, float] | None
    answer: str

    @property
    def alarm(self) -> bool:
        """Whether a difference was said to be where none was made."""
        return not self.planted and self.answer in ("faster", "slower")

    @property
    def missed(self) -> bool:
        """Whether a change that must be found was not, or was said to be one the other way."""
        return abs(self.true) > TO_FIND and bool(self.planted) and self.answer != self.expected

    @property
    def expected(self) -> str:
        """What a change of this sign is."""
        return "slower" if self.true > 0 else "faster"

    def __str__(self) -> str:
        between = "" if self.between is None else f" ({self.between[0]:+.1%} to {self.between[1]:+.1%})"
        verdict = "FALSE ALARM" if self.alarm else "MISSED" if self.missed else ""
        cells = (
            self.example, f"{self.planted:+.0%}", f"{self.true:+.1%}",
            f"{self.said:+.1%}{between}", self.answer, verdict,
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


HEADER = "| job | planted | by its own clock | said | answer | |\n|---|---|---|---|---|---|"


def planted(number: int, pairs: int) -> float:
    """By which fraction the steps of a pair differ: none in every second, and 3 to 30 % either way in the others."""
    if number % 2 == 0:
        return 0.0
    changed = pairs // 2
    size = LEAST + (MOST - LEAST) * (number // 2) / max(1, changed - 1)
    return size if number % 4 == 1 else -size


def observe(example: jobs.Example, slower: float) -> ways.Watched:
    """One run of an example under ``diagnose()``."""
    jobs.wait_until_quiet(timeout_s=20)
    with ways.watching(WAY) as inside:
        assert inside is not None
        options = (*inside.options, "--slower", str(slower))
        with jobs.running(example, "bottleneck", ways.PATIENCE_S, *options) as job:
            job.wait_until_ready()
            return inside.wait(job)


def make(number: int, example: jobs.Example, change: float, folder: Path) -> Made:
    """Makes a pair of runs, and keeps what was said of them and how long their steps took by the job's own clock.

    Raises:
        RuntimeError: one could not be observed.
    """
    runs = observe(example, max(0.0, -change)), observe(example, max(0.0, change))
    folder.mkdir(parents=True, exist_ok=True)
    for file, run in zip(_reports(folder, number), runs, strict=True):
        file.write_text(json.dumps(run.said))
    made = Made(number, example.name, change, *(run.stopwatch_mean_s or float("nan") for run in runs))
    (folder / f"pair-{number:02}.json").write_text(json.dumps(asdict(made)))
    return made


def compare(made: Made, folder: Path) -> Pair:
    """Compares a pair of runs.

    Raises:
        RuntimeError: they could not be compared.
    """
    with tempfile.TemporaryDirectory() as elsewhere:
        compared = Path(elsewhere, "compared.json")
        files = *map(str, _reports(folder, made.number)), "--json", str(compared)
        done = subprocess.run(
            [sys.executable, "-m", "perfdoctor", "compare", *files], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout).strip())
        told = json.loads(compared.read_text())
    true = made.after_s / made.before_s - 1
    return Pair(made.number, made.example, made.planted, true, *_longer(told), told["answer"])


def _reports(folder: Path, number: int) -> tuple[Path, Path]:
    return folder / f"pair-{number:02}-before.report", folder / f"pair-{number:02}-after.report"


def _longer(told: dict[str, Any]) -> tuple[float, tuple[float, float] | None]:
    """By which fraction a step takes longer, as compare has it: a speed-up the other way round."""
    speedup = told["pace"]["speedup"]
    known = speedup["low"] is not None
    return 1 / speedup["value"] - 1, (1 / speedup["high"] - 1, 1 / speedup["low"] - 1) if known else None


def summary(pairs: list[Pair]) -> list[str]:
    """How often it is right."""
    same = [pair for pair in pairs if not pair.planted]
    larger = [pair for pair in pairs if pair.planted and abs(pair.true) > TO_FIND]
    errors = sorted(abs(pair.said - pair.true) for pair in pairs)
    if not errors:
        return ["No pair was compared."]
    return [
        f"Pairs without a change: {len(same)}, false alarms: {sum(pair.alarm for pair in same)} (to reach: 1 of 20). "
        f"Changes above {TO_FIND:.0%}: {len(larger)}, missed: {sum(pair.missed for pair in larger)} (to reach: 2 of "
        f"20). Difference from the job's own clock, in the median: {errors[len(errors) // 2]:.2%}."
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(JOBS), help="these examples only")
    parser.add_argument("--pairs", type=int, default=40, help="how many pairs the whole table has (default 40)")
    parser.add_argument("--first", type=int, default=0, help="the number of the pair to begin with (default 0)")
    parser.add_argument("--last", type=int, help="and of the last one")
    parser.add_argument("--details", type=Path, metavar="FOLDER", help="keep pairs here, and use those there are")
    parser.add_argument("--kept", action="store_true", help="make no pairs, compare those there are")
    parser.add_argument("--write", action="store_true", help="write the table in docs/")
    arguments = parser.parse_args()
    jobs.end_with_finally()
    chosen = [one for one in jobs.examples(arguments.only) if one.name not in jobs.left_out(jobs.examples([one.name]))]
    chosen.sort(key=lambda one: arguments.only.index(one.name))
    last = arguments.pairs - 1 if arguments.last is None else arguments.last
    wanted = () if arguments.kept else range(arguments.first, last + 1)
    pairs: list[Pair] = []
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        folder = arguments.details or Path(elsewhere)
        there = {made.number: made for made in kept(folder)}
        for number in sorted({*wanted, *there}):
            try:
                if number in wanted:
                    change = planted(number, arguments.pairs)
                    there[number] = make(number, chosen[number // 2 % len(chosen)], change, folder)
                pairs.append(compare(there[number], folder))
                print(pairs[-1], flush=True)
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                print(f"pair {number}: {problem}", file=sys.stderr, flush=True)
    print("\n".join(["", *summary(pairs)]))
    if arguments.write:
        lines = [f"Measured on {jobs.machine()}.", "", HEADER, *map(str, pairs), "", *summary(pairs)]
        fill("compare.md", "pairs", "\n".join(lines))
    return 0 if pairs else 1


def kept(folder: Path) -> list[Made]:
    """The pairs that there are, by their numbers."""
    return [Made(**json.loads(file.read_text())) for file in sorted(folder.glob("pair-*.json"))]


if __name__ == "__main__":
    sys.exit(main())
