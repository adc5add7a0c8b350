"""What several live tests share."""

import shutil

import pytest

from perfdoctor.probes.readers import gdb
from tests.processes import accelerator as backend


@pytest.fixture(scope="session")
def accelerator(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of jobs that train on torch's test backend; skips where it is not installed."""
    if reason := backend.why_none():
        pytest.skip(reason)
    return backend.build(tmp_path_factory.mktemp("accelerator"))


@pytest.fixture(scope="session")
def working_gdb() -> None:
    """Skips where there is no gdb, or it cannot let a process call functions on this machine."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    if reason := gdb.failed_trial():
        pytest.skip(reason)
