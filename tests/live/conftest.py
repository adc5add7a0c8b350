"""What several live tests share."""

import pytest

from tests.processes import accelerator as backend


@pytest.fixture(scope="session")
def accelerator(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of jobs that train on torch's test backend; skips where it is not installed."""
    if reason := backend.why_none():
        pytest.skip(reason)
    return backend.build(tmp_path_factory.mktemp("accelerator"))
