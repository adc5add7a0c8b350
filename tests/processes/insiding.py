"""For the tests of ``with diagnose():``: a training script that uses it, run the way users run it."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.files import TARGETS
from tests.processes.attaching import ENVIRONMENT, PATIENCE_S

SCRIPT = str(TARGETS / "inside_training.py")
TRAIN = (sys.executable, SCRIPT)
# Long enough to be sampled 25 times, in the smallest number of steps.
ENOUGH = ("--observe", "60", "--item-ms", "1")


@dataclass
class Run:
    """What a script with ``diagnose()`` left behind.

    Attributes:
        said: the first word of each line on stdout, and the rest of it.
        told: the JSON report; empty if there is none.
    """

    status: int
    said: dict[str, str]
    err: str
    told: dict[str, Any]

    @property
    def steps(self) -> dict[str, Any]:
        """What is known of the steps."""
        return dict(self.told["steps"])


def run_inside(
    folder: Path, *arguments: str, launcher: tuple[str, ...] = TRAIN, script: str = "", **environment: str
) -> Run:
    """Runs a script to its end, and its sidecar too: it holds stderr open.

    Args:
        folder: where it runs.
        arguments: of the script.
        launcher: what runs it.
        script: another one of the targets.
        environment: additional variables.
    """
    file = folder / "told.json"
    launcher = (sys.executable, str(TARGETS / script)) if script else launcher
    done = subprocess.run(
        [*launcher, "--json", str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=folder,
        env={**ENVIRONMENT, **environment},
    )
    words = [line.split(" ", 1) for line in done.stdout.splitlines() if " " in line]
    told = json.loads(file.read_text()) if file.exists() else {}
    return Run(done.returncode, dict(words), done.stderr, told)
