"""All files of a job to their summaries, whatever becomes of single ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfdoctor.cluster.fan_out import Engine, fan_out
from perfdoctor.cluster.files import File
from perfdoctor.cluster.packing import Damaged, Shared, unpack
from perfdoctor.cluster.summarise import summarise
from perfdoctor.cluster.summary_cache import SummaryCache
from perfdoctor.diagnosis import NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say

Progress = Callable[[int], None]
"""Gets how many files are done."""

_NAMED = 10  # files that a note names


@dataclass(slots=True)
class Gathered:
    """What became of a job's files.

    Attributes:
        summaries: of those that could be read, in the order of the files: a ``Rank`` or a ``Host`` each.
        left_out: file name and reason of the others.
        known: how many had been summarised before.
    """

    summaries: list[Any] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    known: int = 0

    def leave_out(self, file: File, why: str) -> None:
        """Notes that a file could not be read."""
        self.left_out.append((file.name, why.replace(file.address, "The file")))

    def not_examined(self) -> list[NotExamined]:
        """What is to be said of the files that were left out, those with one reason together."""
        by_reason: dict[str, list[str]] = {}
        for name, why in self.left_out:
            by_reason.setdefault(why, []).append(name)
        return [
            NotExamined(
                "files",
                say("cluster.left_out", files=tuple(names[:_NAMED]), more=len(names[_NAMED:]), reason=why),
                say("cluster.mend_files"),
            )
            for why, names in by_reason.items()
        ]


def gather(files: Sequence[File], engine: Engine, cache: SummaryCache | None, progress: Progress) -> Gathered:
    """Summarises files, but for those of which a summary is kept.

    Raises:
        PerfDoctorError: none of them can be read, or what they are read with is gone.
    """
    found: dict[File, Any] = {}
    gathered, shared = Gathered(), Shared()
    for file in files:
        packed = cache.find(file) if cache else None
        if packed is not None and (summary := _unpacked(packed, shared)) is not None:
            found[file] = summary
    gathered.known = len(found)
    progress(gathered.known)
    left = [file for file in files if file not in found]
    for count, done in enumerate(fan_out(summarise, left, engine), start=gathered.known + 1):
        summary = None if done.result is None else _unpacked(done.result, shared)
        if summary is None:
            gathered.leave_out(done.item, done.why or "its summary did not arrive whole")
        else:
            found[done.item] = summary
            if cache and done.result:
                cache.keep(done.item, done.result)
        progress(count)
    if not found:
        name, why = gathered.left_out[0]
        raise PerfDoctorError(f"None of the {len(files)} files can be read; of {name}: {why}", hint="Check the files.")
    gathered.left_out.sort()
    gathered.summaries = [found[file] for file in files if file in found]
    return gathered


def _unpacked(packed: bytes, shared: Shared) -> Any:
    """A summary; None where it is damaged."""
    try:
        return unpack(packed, shared)
    except Damaged:
        return None
