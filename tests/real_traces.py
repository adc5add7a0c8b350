"""Where traces lie that others recorded on real GPUs; they are not part of the project."""

import os
from pathlib import Path

import pytest

from tests.sources import ROOT

VARIABLE = "PERFDOCTOR_TRACES"


def real(name: str) -> Path:
    """The path of a real trace, or of a folder of ranks; skips the test where there is none."""
    folder = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "traces")
    for path in (folder / f"{name}.json.gz", folder / name):
        if path.exists():
            return path
    pytest.skip(f"no real trace {name} here: {VARIABLE} names no folder that holds it")
