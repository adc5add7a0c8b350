"""The file that ``attach`` records into: the user's, or a temporary one that is removed when it has served."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfdoctor.errors import PerfDoctorError
from perfdoctor.outputs import require_places
from perfdoctor.probes.procfs import is_running

_SUFFIX = ".perfdoctor"
# The process that records is named in the file's name, so that a file whose process has gone is known as left behind.
_TEMPORARY = re.compile(r"perfdoctor-(\d+)-\w+\.perfdoctor")

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
    except KeyboardInterrupt:
        raise PerfDoctorError(
            "Interrupted before the diagnosis was made.",
            hint=f"What was recorded is kept: perfdoctor report {path}",
        ) from None
    finally:
        if asked is None and (served or not path.stat().st_size):
            path.unlink()


def tell_of_leftovers() -> None:
    """Says on a terminal where earlier runs that were killed have left what they recorded for this user."""
    for path in leftovers() if sys.stderr.isatty() else ():
        kept = f"what it recorded is kept: perfdoctor report {path}"
        print(f"perfdoctor: an earlier run was killed; {kept}", file=sys.stderr)


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


def _require_free(path: Path) -> Path:
    require_places(path)
    if path.exists() and (path.stat().st_size or not path.is_file()):
        raise PerfDoctorError(
            f"{path} exists already.", hint="Choose another file for --recording, or remove that one."
        )
    return path
