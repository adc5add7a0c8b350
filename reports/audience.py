"""Who reads the next move: somebody at a command line, or an agent that has the tools of `perfdoctor mcp`.

It is set once, where answers leave perfdoctor, and a context variable carries it to the words, as it does the language.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_agent: ContextVar[bool] = ContextVar("agent", default=False)


@contextmanager
def for_agents() -> Iterator[None]:
    """Next moves within are those of an agent with tools."""
    token = _agent.set(True)
    try:
        yield
    finally:
        _agent.reset(token)


def either(command: str, *, tool: str) -> str:
    """What is said at a command line, or of the tools."""
    return tool if _agent.get() else command
