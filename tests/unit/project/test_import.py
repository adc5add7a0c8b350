"""Importing perfdoctor is nearly free and changes nothing in the user's process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MAX_MODULES = 100

LOOK = """
import json, logging, os, signal, sys, threading, warnings

def look():
    return {
        "environment": dict(os.environ),
        "handlers": [repr(handler) for handler in logging.root.handlers],
        "level": logging.root.level,
        "loggers": sorted(logging.root.manager.loggerDict),
        "signals": {str(int(number)): repr(signal.getsignal(number)) for number in signal.valid_signals()},
        "threads": [thread.name for thread in threading.enumerate()],
        "tasks": len(os.listdir("/proc/self/task")),
        "filters": [repr(one) for one in warnings.filters],
        "path": list(sys.path),
        "hooks": [repr(one) for one in (sys.excepthook, sys.gettrace(), sys.getprofile(), threading.excepthook)],
        "open files": sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) < 3),
    }

before, loaded = look(), set(sys.modules)
import perfdoctor
print(json.dumps({"before": before, "after": look(), "new": sorted(set(sys.modules) - loaded)}))
"""


def look(folder: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, cwd=folder)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_import_changes_nothing(tmp_path: Path) -> None:
    said = look(tmp_path)
    assert "perfdoctor" in said["new"]
    assert said["after"] == said["before"]


def test_import_is_light(tmp_path: Path) -> None:
    new = look(tmp_path)["new"]
    heavy = {"torch", "pandas", "numpy", "rich", "jinja2", "matplotlib", "psutil", "pynvml"} & set(new)
    assert heavy == set()
    assert len(new) < MAX_MODULES


def test_command_line_starts_without_heavy_libraries(tmp_path: Path) -> None:
    """``perfdoctor attach`` starts in the time that it takes to read its own files."""
    script = (
        "import sys\nfrom perfdoctor.__main__ import make_parser\nmake_parser()\n"
        "print(sorted({'torch', 'pandas', 'numpy', 'rich', 'jinja2', 'matplotlib', 'mcp', 'anyio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
