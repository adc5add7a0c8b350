"""Gathers raw material of jobs on a GPU, one job after the other, while the time lasts."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import jobs
import looking
import planted
from asked import DEVICE, SPEED

TIMER = "timer.json"
HERE = Path(__file__).resolve().parent
# Of a job that nothing is known of yet.
_USUAL_S = 30.0


def variables() -> dict[str, str]:
    """The jobs' environment: one size for all, so that a job and its fixed state do not differ in it."""
    command = [sys.executable, "-c", "import accelerator; print(accelerator.speed())"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE).stdout
    return {"OMP_NUM_THREADS": "4", SPEED: said.splitlines()[-1]}


def gather(chosen: list[planted.Planted], plan: looking.Plan, into: Path, until: float) -> int:
    """Looks at each job; each is written completely before the next one is.

    Args:
        chosen: which, in this order.
        plan: how long to look at each.
        into: gets a folder for each; one of an earlier time is replaced.
        until: start no job that may end later, in seconds of ``time.monotonic``.

    Returns:
        How many were looked at.
    """
    into.mkdir(parents=True, exist_ok=True)
    expected_s = _USUAL_S
    with tempfile.TemporaryDirectory(dir=into, prefix=".") as temporary:
        waiting: dict[int, looking.Gated] = {}

        def waits(number: int) -> looking.Gated | None:
            """A job at its gate, which is started when it is first asked for."""
            if number >= len(chosen):
                return None
            if number not in waiting:
                work = Path(temporary, chosen[number].name)
                work.mkdir()
                waiting[number] = looking.Gated(chosen[number], "bottleneck", plan, work)
            return waiting[number]

        try:
            for number, one in enumerate(chosen):
                begin = time.monotonic()
                if begin + expected_s > until:
                    print(f"no time left; go on with --only {' '.join(other.name for other in chosen[number:])}")
                    return number
                gated, work = waits(number), Path(temporary, one.name)
                assert gated is not None
                told = looking.Look(one, plan, work, gated, partial(waits, number + 1)).gather()
                _finish(work, into / one.name, told)
                took = time.monotonic() - begin
                expected_s = max(expected_s, took) if number else took
                print(_line(told, took), flush=True)
        finally:
            for gated in waiting.values():
                gated.close()
    return len(chosen)


def check_timer(into: Path) -> None:
    """Holds perfdoctor's times of phases on the device against events by hand."""
    into.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "timing.py"), "--json", str(into.resolve() / TIMER)]
    try:
        subprocess.run(command, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        print("timer: no result in 180 s", flush=True)


def is_dry(folder: Path) -> bool:
    """Whether something in a folder was gathered without a GPU."""
    return any(json.loads(file.read_text())["dry"] for file in folder.glob(f"*/{looking.GATHERED}"))


def _finish(work: Path, to: Path, told: dict[str, Any]) -> None:
    """Moves what was gathered to where it stays, with what has to be known of this machine."""
    told["dry"] = os.environ.get(DEVICE) == "cpu"
    # Paths of this machine are nobody's business elsewhere.
    told["renames"] = {sys.prefix: "/home/user/venv", str(jobs.EXAMPLES.parent): "/home/user/perfdoctor"}
    (work / looking.GATHERED).write_text(json.dumps(told, indent=1))
    for request in ("trace", "inside"):
        (work / request).unlink(missing_ok=True)
    if to.exists():
        shutil.rmtree(to)
    work.rename(to)


def _line(told: dict[str, Any], took: float) -> str:
    paces = [told.get("bottleneck_pace"), told.get("fixed_pace")]
    said = " -> ".join(f"{pace:.2f}" for pace in paces if pace)
    return f"{told['name']:22} {took:4.0f} s  {said} steps/s  {'; '.join(told['notes'])}".rstrip()
