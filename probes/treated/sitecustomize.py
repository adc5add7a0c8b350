"""Python runs this when it starts in a process of a job under trial: it waits for torch, then lets the rest take hold.

The folder of this file is on PYTHONPATH. A `sitecustomize` of the user's own runs as if this one were not there.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

SETTINGS = "PERFDOCTOR_TREAT"
"""Environment variable: what to do, as JSON: `folder`, `root`, `original`, `changes` (see the other files)."""
_PARTS = ("notes", "steps", "saves", "changes", "accumulation")


def _load(folder: str, name: str) -> ModuleType:
    """One of the files beside this one."""
    spec = importlib.util.spec_from_file_location(f"perfdoctor_treated_{name}", os.path.join(folder, f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run_users_own(here: str) -> None:
    """Runs the next `sitecustomize` on the path, as Python would have."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _TorchImport:
    """Stands before the finders of modules until torch is imported, and is called when that is done."""

    def __init__(self, begin: Any) -> None:
        self._begin = begin

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Where torch is, with a loader that begins when torch is there; None for everything else."""
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._begin(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    settings = json.loads(os.environ.get(SETTINGS, "{}"))
    parts = {name: _load(here, name) for name in _PARTS} if settings else {}
    if parts:
        notes = parts["notes"].Notes(settings)
        steps = parts["steps"].StepNotes(notes)
        changes = parts["changes"].Changes(settings["changes"], notes, steps)
        changes.before_torch()

        def begin(torch: Any) -> None:
            steps.install(torch)
            parts["saves"].Saves(settings, notes).install(torch)
            changes.install(torch)
            parts["accumulation"].Accumulation(settings["changes"], notes, steps).install(torch)

        sys.meta_path.insert(0, _TorchImport(begin))
    _run_users_own(here)


if __name__ == "sitecustomize":
    _start()
