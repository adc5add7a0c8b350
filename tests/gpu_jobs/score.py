"""Diagnoses simulated GPU jobs, and compares with what was planted.

python tests/gpu_jobs/score.py --seeds 0-499 --only gpu.host_transfer
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).resolve().parents[2]))
from perfdoctor import Recording, examine
from tests.gpu_jobs.planting import Planted, random_job
from tests.gpu_jobs.simulate import simulate
from tests.gpu_jobs.watch import record


@dataclass(frozen=True)
class Judged:
    """What was said about one job.

    Attributes:
        described: what matters of the job, in one line.
        truth: what the bottleneck took.
        said: the verdict's cause.
        said_straggler: the rank that it names.
    """

    planted: Planted
    described: str
    truth: float
    said: str | None
    share: float
    confidence: float
    said_straggler: int | None

    @property
    def bottleneck_right(self) -> bool:
        """The resource is right; of a sound job, that none is claimed."""
        if self.planted.sound:
            return self.cause_right
        return _resource(self.said) in {_resource(one) for one in (self.planted.cause, *self.planted.accepted)}

    @property
    def cause_right(self) -> bool:
        """The cause is right, or may be said, and so is the rank."""
        if self.said in self.planted.accepted or (self.planted.sound and self.said is None):
            return True
        late = self.planted.straggler
        return self.said == self.planted.cause and late in (None, self.said_straggler)

    @property
    def error(self) -> float:
        return abs(self.share - self.truth)


def _resource(cause: str | None) -> str | None:
    return cause.partition(".")[0] if cause else None


def seen(planted: Planted) -> str:
    """What of the GPU can be read."""
    watch = planted.job.watch
    if watch.device != "nvml":
        return watch.device
    return "gpm" if watch.gpm and planted.job.model.gpm else "nvml"


def describe(planted: Planted) -> str:
    """What matters of a job, in one line."""
    job = planted.job
    parts = [planted.name, job.model.name.removeprefix("NVIDIA "), f"{job.ranks} rank(s)", seen(planted)]
    parts.append(f"wait={job.unsure.wait}")
    if job.own_thread:
        parts.append("thread of its own")
    if job.watch.host_ids:
        parts.append("process ids of the host")
    if planted.straggler is not None:
        parts.append(f"straggler={planted.straggler}")
    return ", ".join(parts)


def judge(seed: int, only: str | None, keep: Path | None = None) -> Judged:
    """Simulates, records and diagnoses the job of a seed."""
    planted = random_job(seed, only)
    run = simulate(planted.job)
    with tempfile.TemporaryDirectory() as folder:
        path = record(run, (keep or Path(folder)) / f"{seed}.perfdoctor")
        with Recording.open(path) as recording:
            verdict = examine(recording).verdict
    return Judged(
        planted, describe(planted), planted.truth(run), verdict.cause, verdict.share, verdict.confidence,
        verdict.straggler_rank,
    )  # fmt: skip


def report(judged: list[Judged]) -> Iterator[str]:
    """Scores, tables by cause and by what could be seen, and each job that was judged wrongly."""
    ill = [one for one in judged if not one.planted.sound]
    sound = [one for one in judged if one.planted.sound]
    if ill:
        yield from _scores(ill)
    if sound:
        yield f"sound jobs                 {len(sound)}"
        yield f"without a claimed one      {_percent(sum(one.cause_right for one in sound), len(sound))}"
    yield ""
    yield from _by_cause(judged)
    yield ""
    yield f"{'seen, ranks':26} {'right':>9}"
    yield from _by_watch(judged)
    wrong = [one for one in judged if not one.cause_right]
    if wrong:
        yield ""
        yield "wrong:"
    for one in wrong:
        yield (
            f"  seed {one.planted.seed}: {one.planted.cause} {one.truth:.2f}, said {_said(one)} {one.share:.2f}"
            f" ({one.confidence:.2f}): {one.described}"
        )


def _scores(ill: list[Judged]) -> Iterator[str]:
    right = [one for one in ill if one.cause_right]
    named = sorted(one.error for one in right if one.said == one.planted.cause) or [float("nan")]
    every = sorted(one.error for one in ill)
    yield f"jobs with a bottleneck     {len(ill)}"
    yield f"bottleneck right           {_percent(sum(one.bottleneck_right for one in ill), len(ill))}"
    yield f"cause right                {_percent(len(right), len(ill))}"
    yield f"|share - truth|, cause right: median {median(named):.3f}, p90 {_p90(named):.3f}"
    yield f"|share - truth|, all:         median {median(every):.3f}, p90 {_p90(every):.3f}"


def _by_cause(judged: list[Judged]) -> Iterator[str]:
    by_name = defaultdict(list)
    for one in judged:
        by_name[one.planted.cause, one.planted.name].append(one)
    yield f"{'cause':26} {'planted as':22} {'right':>9}  error  said instead"
    for (cause, name), those in sorted(by_name.items()):
        right = sum(one.cause_right for one in those)
        wrong = Counter(_said(one) for one in those if not one.cause_right)
        instead = ", ".join(f"{said} {count}" for said, count in wrong.most_common())
        error = "     " if those[0].planted.sound else f"{median(one.error for one in those):.3f}"
        yield f"{cause:26} {name:22} {right:4}/{len(those):<4}  {error}  {instead}"


def _by_watch(judged: list[Judged]) -> Iterator[str]:
    by_watch = defaultdict(list)
    for one in judged:
        by_watch[seen(one.planted), "one" if one.planted.job.ranks == 1 else "several"].append(one.cause_right)
    for (what, ranks), right in sorted(by_watch.items()):
        yield f"{what + ', ' + ranks:26} {sum(right):4}/{len(right):<4}"


def _said(one: Judged) -> str:
    said = one.said or "nothing"
    nobody = one.planted.straggler is None and one.said_straggler is None
    return said if nobody else f"{said} of rank {one.said_straggler}"


def _percent(some: int, of: int) -> str:
    return f"{some}/{of} = {100 * some / of:.1f} %"


def _p90(ordered: list[float]) -> float:
    return ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="0-99", help="first-last, or one")
    parser.add_argument("--only", help="a cause, or the name of a plant")
    parser.add_argument("--keep", type=Path, help="a folder for the recordings; otherwise they are removed")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(asked.processes) as pool:
        judged = []
        for one in pool.map(judge, seeds, [asked.only] * len(seeds), [asked.keep] * len(seeds)):
            judged.append(one)
            if sys.stderr.isatty():
                print(f"\r{len(judged)} of {len(seeds)}", end="\r", file=sys.stderr)
    print("\n".join(report(judged)))


if __name__ == "__main__":
    main()
