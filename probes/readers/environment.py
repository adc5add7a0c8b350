"""The environment of a process, as it is now.

What the kernel shows (``/proc/PID/environ``) is what a process was started with. Many a process that trains learns only
later which rank it is, and writes that into its environment (``os.environ["RANK"] = …``: Ray Train, Lightning, scripts
under srun); and setproctitle writes over what it was started with. So the C library's own list is read, ``environ``
(environ(7)): 0.5 ms, once its place in the library is known.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from perfdoctor.probes.readers.process_memory import Memory, image_path, images
from perfdoctor.probes.readers.symbols import Elf

# What is looked at: variables, and bytes of each.
_MOST, _LONGEST = 4096, 4096
_LIBRARIES = ("libc.so", "libc-", "ld-musl", "libc.musl")
# Where the list's address lies in a program or library, by the file's device, number and time of change; None where it
# does not.
_OFFSETS: dict[tuple[int, int, int], int | None] = {}


def environment_of(pid: int) -> dict[str, str] | None:
    """The variables of a process: as they are now, or as it was started where its memory may not be read.

    Returns:
        None where neither can be read.
    """
    process = Path(f"/proc/{pid}")
    return _present(process) or _initial(process)


def _initial(process: Path) -> dict[str, str] | None:
    try:
        raw = (process / "environ").read_bytes()
    except OSError:
        return None
    return _as_variables(raw.split(b"\0"))


def _present(process: Path) -> dict[str, str]:
    """Nothing where it cannot be read, or nothing is there."""
    try:
        memory = Memory(process)
    except OSError:
        return {}
    try:
        place = _place(process)
        first = memory.word(place) if place else None
        words = memory.words(first, _MOST) if first else ()
        until = words.index(0) if 0 in words else 0  # without an end it is no list, or is just being replaced
        return _as_variables(memory.read(word, _LONGEST).partition(b"\0")[0] for word in words[:until])
    except OSError:
        return {}
    finally:
        memory.close()


def _as_variables(entries: Iterable[bytes]) -> dict[str, str]:
    found = (entry.decode(errors="replace").partition("=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in found if name}


def _place(process: Path) -> int | None:
    """Where a process keeps the address of its list.

    A program that names ``environ`` itself has it, and the C library uses that one (a copy relocation); so the program
    is asked first.
    """
    loaded = images(process)
    program = os.readlink(process / "exe").removesuffix(" (deleted)")
    libraries = [path for path in loaded if path.rpartition("/")[2].startswith(_LIBRARIES)]
    for path in (program, *libraries):
        offset = _offset(image_path(process, loaded[path])) if path in loaded else None
        if offset is not None:
            return loaded[path].start + offset
    return None


def _offset(file: Path) -> int | None:
    """Where it lies, from where the file is loaded."""
    seen = file.stat()
    key = seen.st_dev, seen.st_ino, seen.st_mtime_ns
    if key not in _OFFSETS:
        _OFFSETS[key] = _look_up(file)
    return _OFFSETS[key]


def _look_up(file: Path) -> int | None:
    try:
        with Elf(file) as elf:
            found = elf.find("environ") or elf.find("__environ")
            return found[0] - elf.lowest_address if found else None
    except (OSError, ValueError):
        return None
