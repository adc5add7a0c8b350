"""What watches a job's Python functions already: for `perfdoctor attach PID --trace-lines`, beside ``brief_trace.py``.

The text of this file is run in the job, too. Kineto records Python functions by a profile function in each thread, as
``sys.setprofile`` sets one, and asks nobody whose place it takes: a profiler, a debugger or a coverage tool that is
there would see no more. So it is looked for first.

Some versions of Python cannot be recorded: 3.12.0 to 3.12.4 lose calls (github.com/pytorch/pytorch/pull/155446), and
without a GIL Kineto may not go through the threads (github.com/pytorch/pytorch/pull/178551).
"""

from __future__ import annotations

import sys
from typing import Any

_LOSING_CALLS = (3, 12, 0), (3, 12, 4)
# Tools of sys.monitoring, of Python 3.12 (docs.python.org/3/library/sys.monitoring.html).
_TOOLS = range(6)


class PythonHooks:
    """The profile and trace functions of this process; all methods are for its main thread."""

    def why_not(self) -> str:
        """Why Python functions are not to be recorded: a sentence; "" if they are."""
        if _LOSING_CALLS[0] <= sys.version_info[:3] <= _LOSING_CALLS[1]:
            return f"Python {sys.version.split()[0]} loses some calls."
        has_gil: Any = getattr(sys, "_is_gil_enabled", None)  # since 3.13
        if has_gil is not None and not has_gil():
            return "this Python runs without a GIL."
        watching = self._watching()
        return f"it is watched by {watching}." if watching else ""

    def _watching(self) -> str:
        """Who watches already; "" if nobody does. What a C library sets in another thread only is not seen."""
        threading: Any = sys.modules.get("threading")
        if sys.getprofile() is not None or (threading is not None and threading.getprofile() is not None):
            return "a function that sys.setprofile or threading.setprofile was given"
        tracing = [frame for frame in sys._current_frames().values() if frame.f_trace is not None]
        if tracing or sys.gettrace() is not None or (threading is not None and threading.gettrace() is not None):
            return "a function that sys.settrace or threading.settrace was given"
        monitoring: Any = getattr(sys, "monitoring", None)
        tools = [] if monitoring is None else [monitoring.get_tool(tool) for tool in _TOOLS]
        return next((f"a tool of sys.monitoring ({tool})" for tool in tools if tool), "")

    def drop(self) -> None:
        """Takes Kineto's function out of this thread, where it was left: in a child that was forked meanwhile."""
        if type(sys.getprofile()).__name__ == "TraceContext":
            sys.setprofile(None)
