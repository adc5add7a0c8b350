"""An agent that asks perfdoctor: the MCP SDK's client, with a server in this process, or started as agents start it."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from perfdoctor.commands.mcp.server import AgentSession, make_server

T = TypeVar("T")


def with_agent(talk: Callable[[Client], Awaitable[T]]) -> T:
    """Talks to a server in this process, over the protocol's messages."""

    async def connected() -> T:
        async with Client(make_server(AgentSession()), mode="legacy") as client:
            return await talk(client)

    return anyio.run(connected)


def with_started_server(talk: Callable[[Client], Awaitable[T]], temporary: Path) -> T:
    """Talks to `perfdoctor mcp`, started as agents start it.

    Args:
        talk: what is said.
        temporary: where it may write.
    """
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "perfdoctor", "mcp"], env={**os.environ, "TMPDIR": str(temporary)}
    )

    async def connected() -> T:
        async with Client(server) as client:
            return await talk(client)

    return anyio.run(connected)


def ask(name: str, **arguments: Any) -> CallToolResult:
    """What one tool answers."""
    return with_agent(lambda client: client.call_tool(name, arguments))


def text_of(result: CallToolResult) -> str:
    """The text of an answer."""
    (content,) = result.content
    assert content.type == "text"
    return content.text


def values_of(result: CallToolResult) -> Any:
    """Its values."""
    assert result.structured_content is not None
    return result.structured_content
