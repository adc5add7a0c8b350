"""How often perfdoctor is right: watches the examples and compares with what a fix really gains.

For each example the job with its bottleneck runs alone for a while and is watched, by ``perfdoctor attach`` or by
``diagnose()`` in its own code; before and after it the fixed job runs alone, so that a machine that gets slower or
faster meanwhile does not pass for a bottleneck. The true share is 1 - pace with the bottleneck / pace when fixed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs
import scoring
import treating
import ways
from scoring import Result

DOCUMENTS = jobs.EXAMPLES.parent / "docs"


def share_of(diagnosis: dict[str, Any], cause: str) -> float:
    """The share that a diagnosis gives to a cause: the verdict's, a finding's, or nothing."""
    verdict = diagnosis["verdict"]
    if verdict["cause"] == cause:
        return float(verdict["share"])
    return max((float(f["share"]) for f in diagnosis["findings"] if f["cause"] == cause), default=0.0)


def fixed_pace(example: jobs.Example, seconds: float) -> list[float]:
    """Its pace without the bottleneck; nothing where it did not run, which must not cost the runs of all others."""
    try:
        return [jobs.pace_of(example, "fixed", seconds)]
    except RuntimeError as problem:
        print(f"{example.name}, fixed: {problem}", file=sys.stderr)
        return []


def examine(example: jobs.Example, ways_in: list[str], alone_s: float, watched_s: float) -> list[Result]:
    """One run in each way: alone and under diagnosis; before and after these, fixed alone."""
    results = [Result(example, way) for way in ways_in]
    quiet = jobs.wait_until_quiet()
    fixed = [] if example.sound else fixed_pace(example, alone_s)
    paces = []
    for result in results:
        result.note = "" if quiet else "the machine was not quiet"
        try:
            paces.append(watch(result, alone_s, watched_s))
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            result.note = str(problem).replace("\n", " ")
    if paces and not example.sound:
        fixed += fixed_pace(example, alone_s)
    if paces and fixed:
        share = 1 - statistics.mean(paces) / statistics.mean(fixed)
        for result in results:
            result.true_share = share
    return results


def watch(result: Result, alone_s: float, watched_s: float) -> float:
    """Watches the job with its bottleneck in the result's way and enters what was said; returns its pace alone."""
    example = result.example
    with ways.watching(result.way) as inside:
        options = inside.options if inside else ()
        with jobs.running(example, "bottleneck", alone_s + watched_s + ways.PATIENCE_S, *options) as job:
            job.wait_until_ready()
            if inside:
                # It steps aside by itself, and the pace alone is measured after it.
                enter(inside.wait(job), result)
                return job.pace(alone_s)
            time.sleep(jobs.WARM_UP_S)
            pace = job.pace(alone_s)
            enter(ways.attach(job, watched_s), result)
            return pace


def enter(watched: ways.Watched, result: Result) -> None:
    """Enters what a diagnosis says."""
    verdict, steps = watched.said["verdict"], watched.said["steps"]
    result.said, result.extra_s = watched.said, watched.extra_s
    result.cause, result.straggler = verdict["cause"], verdict["straggler_rank"]
    result.confidence = float(verdict["confidence"])
    result.said_share = share_of(watched.said, result.example.expected)
    if steps and watched.stopwatch_s:
        result.step_error = steps["median_s"] / watched.stopwatch_s - 1
        result.sum_error = sum(phase["mean_s"] for phase in steps["phases"].values()) / steps["mean_s"] - 1


def conditions(skipped: Mapping[str, str], arguments: argparse.Namespace) -> list[str]:
    """How it was measured, for the page."""
    watched = f"{arguments.duration:g} s" if arguments.way == [ways.ATTACH] else "15 s, and at least 10 steps,"
    return [
        *([f"Not run here: {', '.join(skipped)}.", ""] if skipped else []),
        f"Measured on {jobs.machine()}.",
        f"Runs of each: {arguments.repeats}; {watched} of watching, {arguments.seconds:g} s of pace.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these examples only")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each example (default 1)")
    parser.add_argument("--seconds", type=float, default=12.0, help="to measure a pace (default 12)")
    parser.add_argument("--duration", type=float, default=15.0, help="to watch (default 15)")
    parser.add_argument(
        "--way", nargs="+", choices=(ways.ATTACH, *ways.INSIDE), default=[ways.ATTACH],
        help="attach from outside (default), or diagnose() around each step, or around the loop",
    )  # fmt: skip
    parser.add_argument("--treat", type=float, metavar="MINUTES", help="try the fixes of each for so long instead")
    parser.add_argument(
        "--by-hand", type=int, metavar="PAIRS", help="hold each fix against what it was to bring instead"
    )
    parser.add_argument("--write", action="store_true", help="write the page in docs/")
    parser.add_argument("--details", type=Path, metavar="FOLDER", help="keep every diagnosis as JSON here")
    arguments = parser.parse_args()
    if arguments.treat:
        return try_fixes(arguments)
    jobs.end_with_finally()
    if arguments.by_hand:
        return fix_by_hand(arguments)
    chosen = jobs.examples(arguments.only)
    skipped = jobs.left_out(chosen)
    for reason in dict.fromkeys(skipped.values()):
        print(f"left out ({reason}): {', '.join(name for name in skipped if skipped[name] == reason)}")
    results = []
    print(scoring.HEADER, flush=True)
    for repeat in range(arguments.repeats):
        for example in (e for e in chosen if e.name not in skipped):
            for result in examine(example, arguments.way, arguments.seconds, arguments.duration):
                results.append(result)
                print(scoring.line(result), flush=True)
                if arguments.details:
                    name = f"{example.name.replace('/', '-')}-{result.way}-{repeat}.json"
                    keep(result, arguments.details / name)
    if not results:
        return 1
    totals = [scoring.totals([result for result in results if result.way == way]) for way in arguments.way]
    for way, total in zip(arguments.way, totals, strict=True):
        print("\n".join(["", f"{way}:", *total.lines()]))
    if arguments.write:
        options = f"--repeats {arguments.repeats} --seconds {arguments.seconds:g} --duration {arguments.duration:g}"
        for name, page in scoring.documents(results, conditions(skipped, arguments), options).items():
            (DOCUMENTS / name).write_text(page)
    return 0 if all(total.good for total in totals) else 1


def try_fixes(arguments: argparse.Namespace) -> int:
    """Holds predicted gains against measured ones, with `perfdoctor treat`."""
    chosen = [example for example in jobs.examples(arguments.only) if not example.sound]
    way = f"{arguments.treat:g} minutes for each job"
    return hold_gains(
        chosen, lambda one: treating.treat(one, arguments.treat, arguments.details), "rows", way, arguments
    )


def fix_by_hand(arguments: argparse.Namespace) -> int:
    """Holds predicted gains against measured ones, of the change that each example's fixed state makes."""
    pairs, seconds, watched_s = arguments.by_hand, arguments.seconds, arguments.duration
    chosen = [example for example in jobs.examples(arguments.only) if example.advice]
    way = f"{watched_s:g} s of watching, {pairs} pairs of {seconds:g} s"
    return hold_gains(chosen, lambda one: [treating.by_hand(one, pairs, seconds, watched_s)], "by hand", way, arguments)


def hold_gains(
    chosen: list[jobs.Example],
    measure: Callable[[jobs.Example], list[treating.Row]],
    place: str,
    way: str,
    arguments: argparse.Namespace,
) -> int:
    """Prints the rows of each example that runs here, and writes them into the page where that is asked for.

    Args:
        chosen: the examples.
        measure: the rows of one; RuntimeError where it gives none.
        place: of the table in the page.
        way: how it is measured, for the page.
        arguments: of the command line.
    """
    rows: list[treating.Row] = []
    skipped = jobs.left_out(chosen)
    print(treating.HEADER, flush=True)
    for example in (e for e in chosen if e.name not in skipped):
        jobs.wait_until_quiet()
        try:
            found = measure(example)
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            print(f"{example.name}: {problem}", file=sys.stderr)
            continue
        rows += found
        print("\n".join(map(str, found)), flush=True)
        if arguments.write:  # after each job: the whole takes an hour or two
            treating.write(place, rows, [f"Measured on {jobs.machine()}, {way}."])
    print("\n".join(["", *treating.summary(rows)]))
    return 0 if rows else 1


def keep(result: Result, path: Path) -> None:
    """Keeps a diagnosis as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result.said))


if __name__ == "__main__":
    sys.exit(main())
