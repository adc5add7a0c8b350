"""Looks at one GPU example in all ways: its pace with its bottleneck and without, attach, a trace, and from inside."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import comparing
import jobs

ATTACH, ANALYZE, INSIDE = "attach", "analyze", "inside"
WAYS = (ATTACH, ANALYZE, INSIDE)
_LOOKS = "PERFDOCTOR_EXAMPLE_LOOKS"
_TRACE_S, _INSIDE_S, _PROFILE_S = 60.0, 90.0, 60.0


@dataclass(frozen=True)
class Plan:
    """How long to look, and at what kind of run.

    Attributes:
        pace_s: to measure a pace.
        watch_s: to attach.
        variables: environment of the jobs.
    """

    pace_s: float
    watch_s: float
    variables: dict[str, str]


def look(example: jobs.Example, plan: Plan, folder: Path) -> dict[str, Any]:
    """Everything that one example tells. What fails is a note in its place; the rest goes on.

    Args:
        example: which.
        plan: how long to look.
        folder: an empty folder for what the tools write: diagnoses, the recording, the trace.
    """
    told: dict[str, Any] = {"example": example.name.removeprefix("gpu/"), "expected": example.expected, "notes": []}
    variables = {**plan.variables, _LOOKS: str(folder)}
    try:
        with jobs.running(example, "bottleneck", 600.0, variables=variables) as job:
            job.wait_until_ready(180.0)
            time.sleep(jobs.WARM_UP_S)
            told["bottleneck_pace"] = job.pace(plan.pace_s)
            told[ATTACH] = _attach(job, plan, folder, example.expected)
            told[ANALYZE] = _analyze(job, folder, example)
            told[INSIDE] = _inside(job, folder, example.expected)
    except RuntimeError as problem:
        told["notes"].append(str(problem)[-400:])
    if not example.sound:
        told.update(_cure(example, plan, told))
    told["compared"] = comparing.compare(folder)
    return told


def _cure(example: jobs.Example, plan: Plan, told: dict[str, Any]) -> dict[str, Any]:
    """the fixed job's pace, and the share of the job with its bottleneck's time that the fix frees."""
    try:
        with jobs.running(example, "fixed", 120.0, variables=plan.variables) as job:
            job.wait_until_ready(180.0)
            time.sleep(jobs.WARM_UP_S)
            pace = job.pace(plan.pace_s)
    except RuntimeError as problem:
        return {"notes": [*told["notes"], f"fixed: {str(problem)[-400:]}"]}
    pace_now = told.get("bottleneck_pace", 0.0)
    return {"fixed_pace": pace, "true_share": 1 - pace_now / pace if pace and pace_now else None}


def _attach(job: jobs.Job, plan: Plan, folder: Path, expected: str) -> dict[str, Any]:
    """From outside, with nvidia-smi looking at the same time."""
    with comparing.nvidia_smi(folder / comparing.SMI):
        target = folder / "attach.json"
        options = ["--duration", str(plan.watch_s), "--json", str(target)]
        options += ["--recording", str(folder / comparing.RECORDING)]
        return _perfdoctor(["attach", str(job.pid), *options], target, expected, plan.watch_s + 60)


def _analyze(job: jobs.Job, folder: Path, example: jobs.Example) -> dict[str, Any]:
    """A few steps under torch.profiler, then the trace alone. Several ranks are a folder of traces."""
    (folder / "trace").touch()
    ranks = 2 if "under_torchrun" in (jobs.EXAMPLES / example.name / "train.py").read_text() else 1
    traces = [folder / f"rank{rank}.json.gz" for rank in range(ranks)]
    if not _wait(lambda: all(trace.exists() for trace in traces), job, _TRACE_S):
        return {"note": f"no trace came in {_TRACE_S:.0f} s"}
    target = folder / "analyze.json"
    return _perfdoctor(["analyze", *map(str, traces), "--json", str(target)], target, example.expected, _TRACE_S)


def _inside(job: jobs.Job, folder: Path, expected: str) -> dict[str, Any]:
    """``with diagnose():`` around each step, its profile included."""
    (folder / "inside").touch()
    target = folder / "inside.json"
    if not _wait(lambda: _read(target) is not None, job, _INSIDE_S + _PROFILE_S):
        return {"note": f"no diagnosis came from inside: {job.output()[-300:]}"}
    return verdict_of(_read(target) or {}, expected)


def _perfdoctor(words: list[str], target: Path, expected: str, timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "perfdoctor", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return {"note": f"perfdoctor {words[0]} took longer than {timeout_s:.0f} s"}
    if done.returncode != 0:
        return {"note": f"ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"}
    return verdict_of(_read(target) or {}, expected)


def verdict_of(diagnosis: dict[str, Any], expected: str) -> dict[str, Any]:
    """What a diagnosis says, and the share that it gives to the expected cause."""
    verdict = diagnosis["verdict"]
    shares = {line["cause"]: line["share"] for line in diagnosis["breakdown"]}
    kept = {name: verdict[name] for name in ("cause", "bottleneck", "share", "confidence", "level", "summary")}
    return {**kept, "expected_share": shares.get(expected, 0.0), "breakdown": shares}


def _wait(done: Callable[[], bool], job: jobs.Job, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline or job.process.poll() is not None:
            return done()
        time.sleep(0.2)
    return True


def _read(file: Path) -> dict[str, Any] | None:
    """A JSON file; None while it is not there, or not whole."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return found
