"""Calls that are made in processes of their own."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from perfdoctor.commands.mcp.apart import call_apart
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    async def call() -> Any:
        return await call_apart(anyio.CapacityLimiter(1), function, *arguments)

    return anyio.run(call)


def test_a_call_is_made_in_another_process() -> None:
    assert called(os.getpid) != os.getpid()
    assert called(print, "where the protocol would be") is None


def test_an_error_comes_back_with_its_next_move() -> None:
    with pytest.raises(PerfDoctorError, match="There is no recording at /nowhere") as raised:
        called(Recording.open, Path("/nowhere"))
    assert raised.value.hint.startswith("Record the job again")


@pytest.mark.parametrize(("function", "arguments", "status"), [(int, ("x",), 1), (os.abort, (), -6)])
def test_a_process_that_ends_without_an_answer_is_an_error(
    function: Callable[..., Any], arguments: tuple[Any, ...], status: int
) -> None:
    with pytest.raises(PerfDoctorError, match=f"has ended with status {status}"):
        called(function, *arguments)


def test_files_of_the_current_folder_do_not_get_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "random", "pickle", "perfdoctor", "anyio"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('loaded from the current folder')")
    monkeypatch.chdir(tmp_path)
    assert called(os.getcwd) == str(tmp_path)


def test_others_wait_for_their_turn_and_a_cancelled_call_ends_its_process() -> None:
    async def talk() -> list[str]:
        turns, before = anyio.CapacityLimiter(1), set(psutil.Process().children())  # of other tests
        async with anyio.create_task_group() as first:
            first.start_soon(call_apart, turns, time.sleep, 600)
            while not (children := set(psutil.Process().children()) - before):
                await anyio.sleep(0.01)
            async with anyio.create_task_group() as second:
                second.start_soon(call_apart, turns, os.getpid)
                await anyio.sleep(0.05)
                assert turns.statistics().tasks_waiting == 1
                first.cancel_scope.cancel()
        return [child.name() for child in children if child.is_running()]

    assert anyio.run(talk) == []
