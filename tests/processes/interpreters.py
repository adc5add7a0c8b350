"""Interpreters of other versions than the one that runs the tests, where the machine has them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def interpreter(version: str) -> str:
    """A CPython of this version: from PATH, this one, or pyenv's."""
    candidates = [sys.executable, shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += [str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python3"))]
    for candidate in candidates:
        if candidate is None:
            continue
        asked = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return candidate
    pytest.skip(f"no CPython {version} on this machine")
