"""Importing perfdoctor is nearly free and changes nothing in the user's process."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from perfdoctor.__main__ import COMMANDS

MAX_MODULES = 100
# Of perfdoctor's own, as long as `attach` only reads its options.
MAX_OF_ATTACH = 59

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
    heavy = {"torch", "pandas", "numpy", "rich", "jinja2", "psutil", "pynvml"} & set(new)
    assert heavy == set()
    assert len(new) < MAX_MODULES


def loaded(*commands: str) -> set[str]:
    """The modules that are loaded once perfdoctor has read the options of commands."""
    run = "\n".join(f"main(['{command}', '--help'])" for command in commands)
    script = f"import sys\nfrom perfdoctor.__main__ import main\n{run}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_command_line_starts_without_heavy_libraries() -> None:
    """A command starts in the time that it takes to read perfdoctor's own files."""
    modules = loaded(*COMMANDS)
    assert {f"perfdoctor.commands.{name}" for name in COMMANDS} <= modules
    assert {"torch", "pandas", "numpy", "rich", "jinja2", "mcp", "anyio"} & modules == set()


def test_attach_loads_nothing_of_other_commands() -> None:
    """It stands beside the job while it loads."""
    own = sorted(name.removeprefix("perfdoctor.") for name in loaded("attach") if name.startswith("perfdoctor."))
    commands = ("arguments", "attach", "hosts", "progress")
    assert [name for name in own if name.startswith("commands.")] == [f"commands.{name}" for name in commands]
    others = (
        "compare",
        "treat",
        "exports",
        "live",
        "traces",
        "operations",
        "analysis",
        "capture.jobs",
        "capture.trace",
    )
    assert [name for name in own if name.startswith(others)] == []
    assert len(own) <= MAX_OF_ATTACH


def test_help_lists_commands_as_they_describe_themselves() -> None:
    first = {name: str(import_module(f"perfdoctor.commands.{name}").__doc__).splitlines()[0] for name in COMMANDS}
    assert first == COMMANDS
