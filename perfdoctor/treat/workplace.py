"""Where a job under trial runs: in a copy of its working folder, so that what it writes there is not the user's."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import Text, say
from perfdoctor.treat.staging import Staging

T = TypeVar("T")

# The file that every virtual environment has (PEP 405). Such a folder is only read, and is linked.
_ENVIRONMENT = "pyvenv.cfg"
_RUN = "run-"  # folders of copies begin so
_LARGEST = 3  # of what is too large, so many are named


class Workplace:
    """A scratch folder, and copies of a working folder in it.

    Each copy lies as deep as the original, with links to all that lies beside it and above: ``../data`` is found.

    Args:
        source: the folder in which the user starts the job.
        links: files and folders in it that the job only reads: they are linked, however large.

    Raises:
        PerfDoctorError: it is too large to be copied, or a link is not in it.
    """

    def __init__(self, source: Path, links: Sequence[Path]) -> None:
        self.source = source.resolve()
        self._links = {(self.source / link).resolve() for link in links}
        for link in sorted(self._links):
            if not link.exists() or self.source not in link.parents:
                raise PerfDoctorError(f"{link} is not in the working folder.", hint="Name what lies in it with --link.")
        self._require_small()
        self.scratch = Path(tempfile.mkdtemp(prefix="perfdoctor-treat-", dir=_same_storage(self.source)))
        self._staging = Staging()

    def remove(self) -> None:
        """Takes everything away again."""
        self._staging.remove()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def as_of_the_source(self, found: T) -> T:
        """What was found in a run, with paths of its copy as those of the source.

        Args:
            found: text, or dataclasses, tuples and dictionaries with text in them.
        """
        own = re.compile(rf"{re.escape(str(self.scratch))}/{_RUN}[^/]+")
        source: T = _rewritten(found, own)
        return source

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A new copy, for one run: none sees what another one has left.

        Yields:
            The folder in which the job is to run.
        """
        root = Path(tempfile.mkdtemp(prefix=_RUN, dir=self.scratch))
        try:
            folder = self._mirror(root)
            self._copy(self.source, folder)
            yield folder
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def stage(self, places: Sequence[str], room: float, until: float) -> Text:
        """Copies into memory what the job waits for, once for all runs that ask for it.

        Args:
            places: files and folders, as of the source.
            room: bytes that they may take together.
            until: by ``time.monotonic``, when it has to be done.

        Returns:
            Why nothing was copied; "" if all was.
        """
        if any(self.source == Path(place) or Path(place) in self.source.parents for place in places):
            return say("treat.staged_with_code")
        return self._staging.make(places, room, until)

    def staged(self, folder: Path) -> dict[str, str]:
        """What a run is to see in place of what lies elsewhere, by the paths at which that really lies.

        Args:
            folder: of the run.
        """
        root = str(folder).removesuffix(str(self.source))
        seen = {os.path.realpath(root + place): copy for place, copy in self._staging.copies.items()}
        return {place: copy for place, copy in seen.items() if os.path.exists(place)}

    def _mirror(self, root: Path) -> Path:
        """Makes the folders above the copy, with links to all that lies in the originals."""
        place, here = Path("/"), root
        for name in self.source.parts[1:]:
            for entry in _entries(place):
                if entry.name != name:
                    (here / entry.name).symlink_to(entry.path)
            place, here = place / name, here / name
            here.mkdir()
        return here

    def _copy(self, source: Path, target: Path) -> None:
        for entry in _entries(source):
            path, copy = Path(entry.path), target / entry.name
            if self._is_linked(entry):
                copy.symlink_to(path.resolve())
            elif entry.is_dir(follow_symlinks=False):
                copy.mkdir()
                self._copy(path, copy)
            elif entry.is_symlink():
                copy.symlink_to(os.readlink(path))
            elif entry.is_file():
                shutil.copy2(path, copy)

    def _is_linked(self, entry: os.DirEntry[str]) -> bool:
        path = Path(entry.path)
        return path in self._links or (entry.is_dir(follow_symlinks=False) and (path / _ENVIRONMENT).is_file())

    def _require_small(self) -> None:
        sizes = {entry.path: self._size(entry) for entry in _entries(self.source)}
        total, limit = sum(sizes.values()), thresholds.WORKING_COPY_BYTES
        if total <= limit:
            return
        largest = sorted(sizes, key=lambda path: -sizes[path])[:_LARGEST]
        named = ", ".join(f"{Path(path).name} ({sizes[path] / 2**20:,.0f} MiB)" for path in largest)
        raise PerfDoctorError(
            f"The working folder is too large for a copy of its own for each run ({limit / 2**20:.0f} MiB): {named}.",
            hint="Name what the job only reads, and it is linked instead of copied: "
            + " ".join(f"--link {shlex.quote(Path(path).name)}" for path in largest[:1]),
        )

    def _size(self, entry: os.DirEntry[str]) -> int:
        if self._is_linked(entry):
            return 0
        if entry.is_dir(follow_symlinks=False):
            return sum(map(self._size, _entries(Path(entry.path))))
        with suppress(OSError):
            return entry.stat(follow_symlinks=False).st_size
        return 0


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where it may not be listed."""
    with suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def _same_storage(source: Path) -> Path | None:
    """A folder for copies on the same storage as the original, so that reading and writing cost what they do there.

    Returns:
        None for Python's own choice, where there is no better one.
    """
    device = source.stat().st_dev
    if os.stat(tempfile.gettempdir()).st_dev == device or source.parent == source:
        return None
    beside = source.parent
    return beside if beside.stat().st_dev == device and os.access(beside, os.W_OK) else None


def _rewritten(value: Any, unwanted: re.Pattern[str]) -> Any:
    """A value without what a pattern matches in any text of it."""
    if isinstance(value, str):
        return unwanted.sub("", value)
    if is_dataclass(value) and not isinstance(value, type):
        held = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        return replace(value, **{name: _rewritten(one, unwanted) for name, one in held.items()})
    if isinstance(value, tuple):
        parts = [_rewritten(one, unwanted) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {_rewritten(key, unwanted): _rewritten(one, unwanted) for key, one in value.items()}
    return value
