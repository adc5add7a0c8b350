"""Every test leaves the machine as it found it: no process, thread, signal handler or variable stays behind."""

import os
import signal
import threading
from collections.abc import Iterator

import psutil
import pytest

# Tests read English, wherever they run; what they start inherits it.
os.environ["LC_ALL"] = "C.UTF-8"

# What was told to end may take a moment.
GRACE_S = 5.0
# Event loops that fsspec and distributed keep for as long as the process lives.
_LOOPS = ("fsspecIO", "IO loop", "Profile", "Dask-")
_TRACKER = "multiprocessing.resource_tracker"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD)


@pytest.fixture(scope="session", autouse=True)
def _heeds_signals() -> None:
    """Whoever starts the tests in the background may have signals ignored, and what they start would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    before, threads, children = _settings(), set(threading.enumerate()), set(_children())
    yield
    alive = psutil.wait_procs([child for child in _children() if child not in children], timeout=GRACE_S)[1]
    assert [_describe(child) for child in alive] == []
    left = [one for one in threading.enumerate() if one not in threads and not one.name.startswith(_LOOPS)]
    for thread in left:
        thread.join(GRACE_S)
    assert [thread for thread in left if thread.is_alive()] == []
    assert _settings() == before


def _children() -> list[psutil.Process]:
    """All but Python's own tracker of shared resources, which stays for as long as the process that had a pool."""
    return [one for one in psutil.Process().children(recursive=True) if _TRACKER not in _describe(one)]


def _settings() -> tuple[object, ...]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return environment, [signal.getsignal(number) for number in SIGNALS], os.getcwd()


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())}"
    except psutil.NoSuchProcess:
        return f"{process.pid} (gone)"
