"""Hosts that a machine plays: each has a name and process ids of its own, and sees no other process."""

import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.processes.attaching import needs_root

BIN = Path(sys.executable).parent

NEEDS_HOSTS = [
    needs_root,
    pytest.mark.skipif(shutil.which("unshare") is None, reason="util-linux's unshare is not installed"),
]


def on_host(name: str, script: str) -> tuple[str, ...]:
    """The command that runs a shell script on a host, which is gone when the script ends."""
    spaces = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
    return (*spaces, "bash", "-c", f"hostname {name}; PATH={BIN}:$PATH\n{script}")


def free_port() -> int:
    """A port of this machine at which ranks can meet: hosts here share its network."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])
