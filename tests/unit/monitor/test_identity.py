"""A job is known again by how it was started, and whatever else runs is not."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from perfdoctor.monitor import identity as identities
from perfdoctor.monitor.identity import Identity, Search, started_ticks, ticks_now
from tests.processes.attaching import ENVIRONMENT, until

WAITS = "import sys, time; time.sleep(300)"


@contextmanager
def started(*words: str, rank: str = "", folder: Path | None = None) -> Iterator[int]:
    """A program that waits, as a rank if that is said."""
    environment = {**ENVIRONMENT, **({"RANK": rank} if rank else {})}
    with subprocess.Popen([sys.executable, "-c", WAITS, *words], env=environment, cwd=folder) as process:
        try:
            assert until(lambda: (found := Identity.of(process.pid)) is not None and WAITS in found.arguments)
            yield process.pid
        finally:
            process.kill()


def identity(pid: int) -> Identity:
    found = Identity.of(pid)
    assert found is not None
    return found


def test_the_same_command_line_in_the_same_folder_is_the_job(tmp_path: Path) -> None:
    before = ticks_now()
    with started("train") as pid:
        whom = identity(pid)
        assert "train" in whom.command
        search = Search(whom, ticks_now() + 1)
        assert search.find() is None  # it was there before
    time.sleep(0.05)
    with started("other"), started("train", folder=tmp_path):
        assert search.find() is None
        with started("train") as again:
            assert until(lambda: search.find() == again)
            assert (started_ticks(again) or 0) > before


def test_of_several_ranks_it_is_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "find_root", lambda pid: pid)  # whoever tests may have torch loaded, as a launcher
    with started("train", rank="1") as pid:
        search = Search(identity(pid), ticks_now() + 1)
    time.sleep(0.05)
    with ExitStack() as held:
        ranks = [held.enter_context(started("train", rank=str(rank))) for rank in range(3)]
        assert search.find() == ranks[1]


def test_who_has_gone_has_no_identity() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    assert Identity.of(process.pid) is None
    assert started_ticks(process.pid) is None


@pytest.mark.parametrize("secret", ["--token=abc123secret", "--password=abc123secret"])
def test_secrets_of_a_command_line_are_masked(secret: str) -> None:
    with started(secret) as pid:
        assert "abc123secret" not in identity(pid).command
