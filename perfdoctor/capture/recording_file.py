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

_SUFFIX = ".perfdoctor"
# The process that records is named in the file's name, so that a file whose process has gone is known as left behind.
_TEMPORARY = re.compile(r"perfdoctor-(\d+)-\w+\.perfdoctor")
_OF_A_RECORDER = re.compile(r"^perfdoctor-\d+-")

_DAY_S = 24 * 3600


@contextmanager
def recording_file(asked: Path | None) -> Iterator[Path]:
    """Where to record. A file that the user did not ask for is removed when it has served, and kept when it has not.

    Args:
        asked: the file that the user named, None for a temporary one.

    Raises:
        PerfDoctorError: it cannot be made or is there already; or the analysis was interrupted (the hint says where the
            recording is).
    """
    path = _require_free(asked) if asked is not None else _temporary_file()
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
            error.hint = error.hint.replace(str(path), str(path := error.recording))
        raise
    except KeyboardInterrupt:
        path = path if asked is not None else _keep(path)
        raise PerfDoctorError(
            "Interrupted before the diagnosis was made.",
            hint=f"What was recorded is kept: perfdoctor report {path}",
        ) from None
    finally:
        if asked is None and (served or not path.stat().st_size):
            path.unlink()


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


def _require_free(path: Path) -> Path:
    if path.exists() and (path.stat().st_size or not path.is_file()):
        raise PerfDoctorError(
            f"{path} exists already.", hint="Choose another file for --recording, or remove that one."
        )
    return path
