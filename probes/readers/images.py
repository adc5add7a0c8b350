"""Which mapped file an address of a process belongs to, and what its functions are called."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.probes.readers.elf import Elf
from perfdoctor.probes.readers.process_memory import Mapping, image_path, mappings
from perfdoctor.recording.clock import now_ns

JIT = "[jit]"
# Of the time, this part may be taken by reading what is mapped into a process.
_MAP_SHARE = 0.001


class Images:
    """The mapped files that samples fell into, over all processes of a job.

    Each stays open from when it is first seen, so that its functions can be named after the process has gone.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}
        self._files: dict[str, int] = {}
        self._offsets: dict[str, set[int]] = {}

    def name(self, process: Path, mapping: Mapping) -> str:
        """What to call the mapped file: its base name, with its folder in front where another file has that
        name."""
        folder, _, base = mapping.path.rpartition("/")
        try:
            file = os.open(image_path(process, mapping), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # deleted, or the process has gone: it stays without function names
            return base
        status = os.fstat(file)
        key = (status.st_dev, status.st_ino)
        if key in self._names:
            os.close(file)
            return self._names[key]
        name = base if base not in self._files else f"{folder.rpartition('/')[2]}/{base}"
        self._names[key] = name
        if name in self._files:
            os.close(file)
        else:
            self._files[name] = file
        return name

    def note(self, image: str, offset: int) -> None:
        """Remembers an offset whose function is to be named at the end."""
        if image in self._files:
            self._offsets.setdefault(image, set()).add(offset)

    def functions(self) -> Iterator[tuple[str, int, str]]:
        """Image, offset and mangled function name for all that was noted and has a name."""
        for image, offsets in self._offsets.items():
            try:
                with Elf(Path(f"/proc/self/fd/{self._files[image]}")) as elf:
                    names = elf.functions_at(offsets)
            except (OSError, ValueError):
                continue
            for offset, name in sorted(names.items()):
                yield image, offset, name

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()


class AddressSpace:
    """The executable mappings of one process, read again when an address is not among them; of a process with thousands
    of mappings rarely, since to read them takes a while.
    """

    def __init__(self, process: Path, images: Images) -> None:
        self._process = process
        self._images = images
        self._starts: list[int] = []
        self._mappings: list[Mapping] = []
        self._named: dict[str, str] = {}
        self._fresh = False
        self._again_ns = 0

    def begin(self) -> None:
        """Allows one new look at the process's map, if it should be needed."""
        self._fresh = now_ns() < self._again_ns

    def place(self, address: int) -> tuple[str, int]:
        """Image and offset in its file of an address; ``[jit]`` and the address where no file is mapped."""
        mapping = self._find(address)
        if mapping is None and not self._fresh:
            self._read()
            mapping = self._find(address)
        if mapping is None or not mapping.path or mapping.path.startswith("//anon"):
            return JIT, address
        if not mapping.is_file:
            return (mapping.path, address - mapping.start) if mapping.path == "[vdso]" else (JIT, address)
        if mapping.path.startswith(("/dev/shm/", "/memfd:", "/dev/zero")):
            return JIT, address  # code that was generated into shared memory
        image = self._named.get(mapping.path)
        if image is None:
            image = self._named[mapping.path] = self._images.name(self._process, mapping)
        offset = address - mapping.start + mapping.offset
        self._images.note(image, offset)
        return image, offset

    def _find(self, address: int) -> Mapping | None:
        i = bisect_right(self._starts, address) - 1
        return self._mappings[i] if i >= 0 and address < self._mappings[i].end else None

    def _read(self) -> None:
        self._fresh = True
        start_ns = now_ns()
        try:
            self._mappings = list(mappings(self._process, only_code=True))
        except OSError:  # it has gone; what was known stays
            return
        finally:
            self._again_ns = start_ns + int((now_ns() - start_ns) / _MAP_SHARE)
        self._starts = [mapping.start for mapping in self._mappings]
