"""`perfdoctor mcp` as agents start it, on a job that trains."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client

from tests.processes.agents import text_of, values_of, with_started_server
from tests.processes.attaching import ENVIRONMENT, TRAINING, Started, gone, is_watched, job, until

HELLO = (
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    '"clientInfo":{"name":"test","version":"0"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


def attach(pid: int) -> str:
    """What an agent sends to watch a job for some minutes."""
    arguments = {"pid": pid, "seconds": 300}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "attach", "arguments": arguments}}
    return f"{json.dumps(call)}\n"


@pytest.fixture(scope="module")
def training() -> Iterator[Started]:
    with job(*TRAINING) as started:
        yield started


def test_a_job_is_watched_while_other_calls_are_answered(training: Started, tmp_path: Path) -> None:
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async def talk(client: Client) -> None:
        answers: list[Any] = []

        async def watch() -> None:
            arguments = {"pid": training.pid, "seconds": 3.0}
            answers.append(await client.call_tool("attach", arguments, progress_callback=hear))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            listed = await client.call_tool("list_jobs")
            checked = await client.call_tool("check", {"pid": training.pid})
            assert answers == []
        assert training.pid in [one["pid"] for one in values_of(listed)["jobs"]]
        assert values_of(checked)["attachable"] is True
        (watched,) = answers
        assert not watched.is_error, text_of(watched)
        assert values_of(watched)["diagnosis"] == "d1"
        assert values_of(watched)["breakdown"]
        found = await client.call_tool("read_finding", {"diagnosis": "d1", "number": 1})
        assert values_of(found)["evidence"]

    with_started_server(talk, tmp_path)
    assert len(heard) >= 3
    assert heard == sorted(heard)
    assert list(tmp_path.iterdir()) == []


def test_a_cancelled_call_lets_go_of_the_job(training: Started, tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "attach", {"pid": training.pid, "seconds": 300.0})
            assert await anyio.to_thread.run_sync(until, lambda: is_watched(training.pid))
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(until, lambda: not is_watched(training.pid))
        assert not (await client.call_tool("check")).is_error

    with_started_server(talk, tmp_path)
    assert training.process.poll() is None


@pytest.mark.parametrize(
    ("end", "status"),
    [("close", 0), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_server_that_ends_lets_go_of_the_job(
    end: str | signal.Signals, status: int, training: Started, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "perfdoctor", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path)},
    ) as server:
        assert server.stdin is not None
        server.stdin.write(HELLO + attach(training.pid))
        server.stdin.flush()
        # The server itself looks at the job, too, before the call begins.
        assert until(lambda: psutil.Process(server.pid).children() and is_watched(training.pid))
        (call,) = psutil.Process(server.pid).children()
        server.stdin.close() if end == "close" else server.send_signal(end)
        assert server.wait(20) == status
        assert until(lambda: gone(call.pid) and not is_watched(training.pid))
    assert training.process.poll() is None
    if end != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []
