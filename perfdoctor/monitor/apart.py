"""What a watch for days has others do: another perfdoctor, whose memory and failures end with it.

A window is some seconds of `perfdoctor attach`, and what a change is made of, `perfdoctor compare` says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perfdoctor.probes.inside.same_python import command
from perfdoctor.results.history import Window

# Beyond what is watched: an analysis beside a job that takes every core takes some seconds.
_PATIENCE_S = 180.0
_LEAST_SHARE = 0.005


class Apart:
    """A perfdoctor of its own.

    Args:
        arguments: its command line.
        lasts_s: for how long it waits or watches by itself.
    """

    def __init__(self, arguments: Sequence[str], lasts_s: float = 0.0) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._until_s = time.monotonic() + lasts_s + _PATIENCE_S
        self._process = subprocess.Popen(
            command("perfdoctor.__main__", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C is for whoever watches for days, who then ends this
        )

    def cost_s(self) -> float | None:
        """Its CPU seconds, as soon as it has ended; None before."""
        if time.monotonic() > self._until_s:
            self.end()
        try:
            ended, status, used = os.wait4(self._process.pid, os.WNOHANG)
        except ChildProcessError:  # somebody else has waited for it
            return 0.0
        if not ended:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return used.ru_utime + used.ru_stime

    def said(self) -> str:
        """The first line that it wrote to standard error."""
        with self._said:
            self._said.seek(0)
            return self._said.read(4096).decode(errors="replace").partition("\n")[0].removeprefix("perfdoctor: ")

    def stop(self) -> None:
        """Asks it to end; of what it has watched it still makes a diagnosis."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)

    def end(self) -> None:
        """Ends it by force."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


class Attaching:
    """The process of a window.

    Args:
        pid: a process of the job.
        path: the recording to write; the report as JSON lies beside it.
        lasts_s: for how many seconds the job is to be watched.
        why: as in ``Window``.
        options: further ones of `perfdoctor attach`.
    """

    def __init__(self, pid: int, path: Path, lasts_s: float, why: str, options: tuple[str, ...]) -> None:
        self._path, self._report, self._why, self._began = path, path.with_suffix(".json"), why, time.time()
        files = ("--recording", str(path), "--json", str(self._report), "--force")
        self._process = Apart(["attach", str(pid), "--duration", str(lasts_s), *files, *options], lasts_s)

    def take(self) -> Window | None:
        """The window, as soon as it is over; None before."""
        cost_s = self._process.cost_s()
        if cost_s is None:
            return None
        report, said = self._read(), self._process.said()
        seen = Window(round(self._began, 3), round(time.time() - self._began, 3), self._why, cost_s=round(cost_s, 3))
        if report is None:
            return replace(seen, summary=said or "perfdoctor attach was killed")
        recording = self._path.name if self._path.exists() and self._path.stat().st_size else ""
        return replace(condensed(report, seen), recording=recording)

    def stop(self) -> None:
        """Ends the watching early."""
        self._process.stop()

    def _read(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self._report.read_bytes()))
        except (OSError, ValueError):
            return None


def condensed(report: Mapping[str, Any], seen: Window) -> Window:
    """What a history keeps of a report.

    Args:
        report: as `perfdoctor attach --json` writes it.
        seen: when and why the job was watched.
    """
    verdict, stuck = report["verdict"], report["stuck"]
    breakdown = [(str(line["cause"]), float(line["share"])) for line in report["breakdown"]]
    return replace(
        seen,
        lasted_s=float(report["job"]["watched_seconds"]),
        cause=verdict["cause"],
        share=round(verdict["share"], 4),
        confidence=round(verdict["confidence"], 3),
        shares={cause: round(share, 4) for cause, share in breakdown if share >= _LEAST_SHARE and stuck is None},
        straggler_rank=verdict["straggler_rank"],
        summary=verdict["summary"],
        stuck="" if stuck is None else str(stuck["kind"]),
    )
