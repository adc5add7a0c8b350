"""The files of a job: which there are, in folders here or at a URL, and what shows whether one has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge.flight_recorder import BEGINNINGS
from perfdoctor.messages import say
from perfdoctor.recording.file_format import is_recording
from perfdoctor.recording.remote import file_system, is_url, reaching
from perfdoctor.traces.reader import HOW_TO_RECORD

Kind = Literal["trace", "recording", "dump"]
_TRACES = (".json", ".json.gz")
_RECORDING = ".perfdoctor"
_CHANGES = ("ETag", "LastModified", "mtime", "created")  # what file systems of fsspec say of a file, the surest first


@dataclass(frozen=True, slots=True)
class File:
    """One file of a job.

    Attributes:
        address: its path, absolute, or its URL.
        size: bytes, as it lies there.
        state: what changes whenever the file does; "" where nothing shows it.
    """

    address: str
    kind: Kind
    size: int
    state: str

    @property
    def name(self) -> str:
        """Its last part."""
        return self.address.rstrip("/").rpartition("/")[2]


def find_traces(paths: Iterable[Path]) -> list[Path]:
    """The traces among some paths of this machine, and in those that are folders.

    Raises:
        PerfDoctorError: as ``find_files``.
    """
    return [Path(file.address) for file in find_files(map(str, paths))]


def find_files(addresses: Iterable[str]) -> list[File]:
    """The traces, recordings or dumps among some paths and URLs, and in folders among them, in order of their names.

    Raises:
        PerfDoctorError: one does not exist or cannot be reached, a folder holds neither, or there are both.
    """
    found = {file.address: file for address in addresses for file in _files_at(address)}
    kinds = {file.kind for file in found.values()}
    if len(kinds) > 1:
        there = " and ".join(f"{kind}s" for kind in sorted(kinds, reverse=True))
        raise PerfDoctorError(
            f"There are {there}: each of them is a job by itself.",
            hint="Keep them in folders of their own, and analyze one after the other.",
        )
    return list(found.values())


def _files_at(address: str) -> list[File]:
    inside = _listed(address) if is_url(address) else _at_path(Path(address))
    if not inside:
        raise PerfDoctorError(
            "There is no trace (*.json, *.json.gz), no recording (*.perfdoctor) and no dump of the Flight Recorder "
            f"in {address}.",
            hint=say("moves.record_or_trace", trace=HOW_TO_RECORD),
        )
    return sorted(inside, key=lambda file: file.address)


def _at_path(path: Path) -> list[File]:
    if not path.exists():
        raise PerfDoctorError(f"There is no file {path}.", hint="Check the path.")
    if not path.is_dir():
        return [_local(path.stat(), path, _kind_of(path))]
    with os.scandir(path) as entries:
        return [
            _local(entry.stat(), Path(entry), kind)
            for entry in entries
            if entry.is_file() and (kind := _kind(entry.name) or _dump(Path(entry))) is not None
        ]


def _local(seen: os.stat_result, path: Path, kind: Kind) -> File:
    return File(str(path.absolute()), kind, seen.st_size, f"{seen.st_size} {seen.st_mtime_ns}")


def _kind(name: str) -> Kind | None:
    if name.endswith(_RECORDING):
        return "recording"
    return "trace" if name.endswith(_TRACES) else None


def _kind_of(path: Path) -> Kind:
    """What a file is that was named by itself, whatever its name."""
    try:
        with path.open("rb") as file:
            return "recording" if is_recording(file.read(128)) else _dump(path) or "trace"
    except OSError:
        return "trace"  # whoever reads it says what is wrong


def _dump(path: Path) -> Kind | None:
    """Whether a file is a dump of the Flight Recorder: its name ends in a rank, and it begins as they do."""
    if not path.name[-1:].isdigit():
        return None
    try:
        with path.open("rb") as file:
            return "dump" if file.read(32).startswith(BEGINNINGS) else None
    except OSError:
        return None


def _listed(url: str) -> list[File]:
    """What lies at a URL: a file, or the files of a folder."""
    files = file_system(url)
    with reaching(url):
        path = files._strip_protocol(url)
        if (kind := _kind(url)) is not None and not files.isdir(path):
            return [_remote(files, files.info(path), kind)]
        return [
            _remote(files, one, kind)
            for one in files.ls(path, detail=True)
            if one["type"] == "file" and (kind := _kind(one["name"])) is not None
        ]


def _remote(files: Any, info: dict[str, Any], kind: Kind) -> File:
    changed = next((str(info[name]) for name in _CHANGES if info.get(name)), "")
    size = int(info.get("size") or 0)
    return File(files.unstrip_protocol(info["name"]), kind, size, changed and f"{size} {changed}")
