"""Where files lie that tests read: the project's own, scripts to watch, and traces recorded on real GPUs."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ROOT / "tests" / "targets"
VARIABLE = "PERFDOCTOR_TRACES"


def real(name: str) -> Path:
    """The path of a real trace, or of a folder of ranks, which are no part of the project; skips the test without."""
    folder = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "traces")
    for path in (folder / f"{name}.json.gz", folder / name):
        if path.exists():
            return path
    pytest.skip(f"no real trace {name} here: {VARIABLE} names no folder that holds it")
