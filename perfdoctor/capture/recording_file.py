"""The file that is recorded into: the user's, or a temporary one that is removed when it has served."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes.readers.procfs import is_running
from perfdoctor.recording.file_format import is_recording

_SUFFIX = ".perfdoctor"
# The process that records is named in the file's name, so that a file whose process has gone is known as left behind.
_TEMPORARY = re.compile(r"perfdoctor-(\d+)-\w+\.perfdoctor")
_OF_A_RECORDER = re.compile(r"^perfdoctor-\d+-")

# What the recording that was in a file before is called, as editors call their backups.
ASIDE = "~"
_HEADER = 100

_DAY_S = 24 * 3600  # what a killed run left before that is no news


@contextmanager
def recording_file(asked: Path | None, *, force: bool = False) -> Iterator[Path]:
    """Where to record. A file that the user did not ask for is removed when it has served, and kept when it has not.

    What was recorded cannot be made again: a recording that is there already is moved aside, to ``FILE~``.

    Args:
        asked: the file that the user named, None for a temporary one.
        force: whether to move any other file aside too.

    Raises:
        PerfDoctorError: it cannot be made, or another file is there; or the analysis was interrupted (the hint says
            where the recording is).
        KeyboardInterrupt: nothing was recorded by then.
    """
    path = _make_room(asked, force=force) if asked is not None else _temporary_file()
    served = False
    try:
        yield path
        served = True
    except BrokenPipeError:
        served = True
        raise
    except PerfDoctorError as error:
        if asked is None and error.recording is not None:
            error.recording = _keep(path)
            error.next_move = error.hint.replace(str(path), str(path := error.recording))
        raise
    except KeyboardInterrupt:
        if not _holds_something(path):
            raise
        path = path if asked is not None else _keep(path)
        raise PerfDoctorError(
            "Interrupted before the diagnosis was made.",
            hint=f"What was recorded is kept: perfdoctor report {path}",
        ) from None
    finally:
        if asked is None and (served or not _holds_something(path)):
            path.unlink(missing_ok=True)


def _holds_something(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def report_leftovers() -> None:
    """Says on a terminal that earlier runs were killed, where the last of them left what it recorded for this user."""
    found = leftovers() if sys.stderr.isatty() else []
    if not found:
        return
    newest = found[-1]
    if len(found) == 1:
        # A journal may lie beside it.
        runs, remove = "an earlier run was killed; what it", f"rm {shlex.quote(str(newest))}*"
    else:
        runs, remove = f"{len(found)} earlier runs were killed; what the last one", _remove_all(newest.parent)
    print(f"perfdoctor: {runs} recorded is kept: perfdoctor report {newest}", file=sys.stderr)
    print(f"  To be rid of it: {remove}", file=sys.stderr)


def _remove_all(folder: Path) -> str:
    """The command that removes what killed runs left; a run that goes on has written a moment ago."""
    return f"find {shlex.quote(str(folder))} -maxdepth 1 -name 'perfdoctor-[0-9]*' -user {os.getuid()} -mmin +1 -delete"


def leftovers() -> list[Path]:
    """Temporary recordings of this user whose recorder has gone, of the last day, oldest first."""
    since = time.time() - _DAY_S
    found = []
    for path in Path(tempfile.gettempdir()).glob(f"perfdoctor-*{_SUFFIX}"):
        match = _TEMPORARY.fullmatch(path.name)
        try:
            status = path.stat()
        except OSError:
            continue
        ours = status.st_uid == os.getuid() and status.st_size > 0 and status.st_mtime > since
        if match and ours and not is_running(int(match[1])):
            found.append((status.st_mtime, path))
    return [path for _, path in sorted(found)]


def _temporary_file() -> Path:
    try:
        handle, name = tempfile.mkstemp(prefix=f"perfdoctor-{os.getpid()}-", suffix=_SUFFIX)
    except OSError as error:
        raise PerfDoctorError(
            f"A temporary file for the recording cannot be made: {error.strerror}.",
            hint="Say where to record: --recording FILE.",
        ) from None
    os.close(handle)
    return Path(name)


def _keep(path: Path) -> Path:
    """Gives a recording that the user hears of a name that does not pass for one of a killed run."""
    return path.rename(path.with_name(_OF_A_RECORDER.sub("perfdoctor-kept-", path.name)))


def _make_room(path: Path, *, force: bool) -> Path:
    """Moves what is at a path aside, if it is a recording."""
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return path
    require_replaceable(path, force=force)
    try:
        _move_aside(path.resolve())
    except OSError as error:
        raise PerfDoctorError(
            f"{path} cannot be moved aside to {path}{ASIDE}: {error.strerror}.", hint="Choose another file."
        ) from None
    if sys.stderr.isatty():
        print(f"perfdoctor: the recording that was in {path} is in {path}{ASIDE} now.", file=sys.stderr)
    return path


def _move_aside(path: Path) -> None:
    """Gives a recording another name, and what lies beside it, without which one that was cut short loses something."""
    for old in _all_of(path.with_name(path.name + ASIDE)):
        old.unlink()
    for file in _all_of(path):
        file.rename(path.with_name(path.name + ASIDE + file.name.removeprefix(path.name)))


def _all_of(path: Path) -> list[Path]:
    """A recording with SQLite's journal and the stacks that a killed perfdoctor has left, those of them that exist."""
    beside = (f"{path.name}-journal", f"{path.name}.stacks-")
    return [file for file in path.parent.iterdir() if file.name == path.name or file.name.startswith(beside)]


def require_replaceable(path: Path | None, *, force: bool) -> None:
    """Makes sure that a new recording may take the place of what is at a path, before a job is looked for.

    Args:
        path: where to record; None for nowhere.
        force: whether any file may be replaced.

    Raises:
        PerfDoctorError: what is there is no recording.
    """
    if path is None or not path.exists():
        return
    if not path.is_file():
        raise PerfDoctorError(f"{path} is no file that can be recorded into.", hint="Choose another for --recording.")
    try:
        with path.open("rb") as file:
            beginning = file.read(_HEADER)
    except OSError as error:
        raise PerfDoctorError(f"{path} cannot be read: {error.strerror}.", hint="Choose another file.") from None
    if beginning and not force and not is_recording(beginning):
        raise PerfDoctorError(
            f"{path} is there already, and is no recording.",
            hint="Choose another file for --recording, or replace it with --force.",
        )
