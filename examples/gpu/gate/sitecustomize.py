"""A gate before a job: its process has imported its libraries and made its CUDA context, and waits to begin.

Python imports a module of this name at every start, when its folder is on ``PYTHONPATH``; the machine's own one, if
there is one, is left out meanwhile. The variables of the gate are taken out of the environment, so that whatever the
job starts does not wait.

``GATE`` is the path of a file: a file of that name and ``.context`` lets the process make its context, the file itself
lets the job begin. ``GATE_IMPORTS`` has the libraries, and without any no context is made.
"""

import contextlib
import importlib
import os
import time


def _wait_for(*paths: str) -> None:
    while not any(os.path.exists(path) for path in paths):
        time.sleep(0.02)


def _pass(gate: str, names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # the job says so itself, or does without it
            importlib.import_module(name)
    _wait_for(gate, f"{gate}.context")
    if "torch" in names:
        import torch

        if torch.cuda.is_available():
            matrix = torch.ones(64, 64, device="cuda")
            matrix @ matrix  # loads the library of matrix products
            torch.cuda.synchronize()
    _wait_for(gate)


_gate = os.environ.pop("GATE", None)
_names = os.environ.pop("GATE_IMPORTS", "").split()
if _gate:
    _pass(_gate, _names)
