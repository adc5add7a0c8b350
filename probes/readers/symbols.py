"""Which mapped file an address of a process belongs to, and what its functions are called: symbols of ELF files.

Only 64-bit little-endian files are understood: those are what Linux runs on x86-64 and on 64-bit Arm. The
layout is that of ``<elf.h>`` (Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr, Elf64_Sym).
"""

import mmap
import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from perfdoctor.probes.readers.process_memory import Mapping, image_path, mappings
from perfdoctor.recording.clock import now_ns

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PT_LOAD = 1  # types of segments, and below of sections
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_FUNCTIONS_AND_LABELS = (*_FUNCTIONS, 0)  # STT_NOTYPE: assembly need not say what is a function, as MKL's before AVX
_MARK = ord("$")
_BLOCK = 65536  # symbols looked at together: bounds the memory that a pass takes to a few MB
_NEAR = 16 * 1024  # bytes; glibc's malloc lies within 8 KiB of its exports, its memcpy variants 48 KiB from any
_PAGE = 12  # bits of an address within a page


class LoadSegment(NamedTuple):
    """A loadable part of the file: ``size`` bytes from ``offset`` go to ``address``."""

    offset: int
    address: int
    size: int


class _Table(NamedTuple):
    start: int
    entries: int
    strings: int
    strings_end: int


class Elf:
    """One ELF file, to be used as a context manager.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not a 64-bit little-endian ELF file, or is cut short.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        try:
            self.segments, self._tables, self._section_ends = self._read_headers()
        except (struct.error, ValueError) as error:
            self._map.close()
            raise ValueError(f"{path}: not a readable ELF file: {error}") from error

    def __enter__(self) -> "Elf":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._map.close()

    def _read_headers(self) -> tuple[list[LoadSegment], dict[int, _Table], list[int]]:
        if self._map[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF header")
        header = _HEADER.unpack_from(self._map, 0)
        segments_at, sections_at = header[5], header[6]
        segment_count, section_count = header[10], header[12]
        segments = []
        for i in range(segment_count):
            kind, _, offset, address, _, size, _, _ = _SEGMENT.unpack_from(self._map, segments_at + i * _SEGMENT.size)
            if kind == _PT_LOAD:
                segments.append(LoadSegment(offset, address, size))
        sections = [_SECTION.unpack_from(self._map, sections_at + i * _SECTION.size) for i in range(section_count)]
        tables = {}
        for section in sections:
            if section[1] in (_SHT_SYMTAB, _SHT_DYNSYM):
                strings = sections[section[6]]
                tables[section[1]] = _Table(section[4], section[5] // _SYMBOL.size, strings[4], strings[4] + strings[5])
        return segments, tables, [section[3] + section[5] for section in sections]

    @property
    def lowest_address(self) -> int:
        """Where the first segment wants to lie; the load bias is where it does lie minus this."""
        return min((segment.address for segment in self.segments), default=0) & -mmap.PAGESIZE

    def find(self, name: str, *, beginning: bool = False) -> tuple[int, int] | None:
        """Address and size of an exported symbol, None if the file does not define it.

        Args:
            name: its name.
            beginning: whether that is only how the name begins; of several symbols any may be found.
        """
        table = self._tables.get(_SHT_DYNSYM)
        if table is None:
            return None
        text = name.encode() + (b"" if beginning else b"\0")
        wanted = set()
        at = self._map.find(text, table.strings, table.strings_end)
        while at >= 0:  # linkers let names share their tails, so the name may also lie inside a longer one
            wanted.add(at - table.strings)
            at = self._map.find(text, at + 1, table.strings_end)
        if not wanted:
            return None
        for name_at, _, _, section, address, size in _SYMBOL.iter_unpack(
            self._map[table.start : table.start + table.entries * _SYMBOL.size]
        ):
            if name_at in wanted and section:
                return address, size
        return None

    def offset_of(self, address: int) -> int | None:
        """Where in the file lies what is loaded to an address; None if nothing is."""
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        return None

    def functions_at(self, offsets: Iterable[int]) -> dict[int, str]:
        """Names of the functions that hold these file offsets.

        One linear pass over the symbol table (about 0.15 µs per symbol), whatever the number of offsets. A
        file that was stripped names only what it exports; there ``~name`` stands for unnamed code near the
        function ``name`` and ``~`` for unnamed code far from any. In other files, code in no function is
        the linker's (``~stub``), but behind the name of one of unknown size, as assembly may have, it is that one's.
        Offsets outside the file's segments are left out.
        """
        places = sorted((address, offset) for offset in set(offsets) for address in self._addresses(offset))
        stripped = _SHT_SYMTAB not in self._tables
        table = self._tables.get(_SHT_DYNSYM if stripped else _SHT_SYMTAB)
        if not places or table is None:
            return {}
        reach = _NEAR if stripped else 0
        keys = [address for address, _ in places]
        # By offset: the distance to a function, a label at last; whether it is inside, and where the name is.
        nearest: dict[int, tuple[tuple[int, bool], bool, int]] = {}
        kinds = _FUNCTIONS if stripped else _FUNCTIONS_AND_LABELS
        near = {page for key in keys for page in range(key - reach - _NEAR >> _PAGE, (key + reach >> _PAGE) + 1)}
        for head, start, size in self._functions(table, near, kinds):
            end = start + size if size or stripped else min(start + _NEAR, self._section_end(head))
            i = bisect_left(keys, start - reach)
            while i < len(keys) and keys[i] < end + reach:
                far = max(start - keys[i], keys[i] - (start + max(1, size) - 1), 0)
                distance = far, (head >> 32) & 15 not in _FUNCTIONS
                found = nearest.get(places[i][1])
                if found is None or distance < found[0]:
                    nearest[places[i][1]] = distance, start <= keys[i] < end, head & 0xFFFFFFFF
                i += 1
        names = {offset: "~" if stripped else "~stub" for _, offset in places}
        for offset, (_, inside, at) in nearest.items():
            names[offset] = ("" if inside else "~") + self._string(table, at)
        return names

    def _section_end(self, head: int) -> int:
        """Where the section ends that a function lies in, by the first word of its symbol."""
        number = head >> 48
        return self._section_ends[number] if number < len(self._section_ends) else 0

    def _functions(self, table: _Table, pages: set[int], kinds: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
        """First word (name, kind, section), address and size of functions that are large or begin in these pages.

        Labels that only say where code and data begin, as assemblers for arm64 set them (``$x``), are left out.
        """
        for first in range(0, table.entries, _BLOCK):
            start = table.start + first * _SYMBOL.size
            end = table.start + min(first + _BLOCK, table.entries) * _SYMBOL.size
            words = array("Q", self._map[start:end])
            # The first test is for speed: few symbols pass it, and libtorch has half a million of them.
            for head, address, size in zip(words[0::3], words[1::3], words[2::3], strict=True):
                reachable = address >> _PAGE in pages or size > _NEAR
                found = reachable and (head >> 32) & 15 in kinds and head >> 48
                if found and self._map[table.strings + (head & 0xFFFFFFFF)] != _MARK:
                    yield head, address, size

    def _addresses(self, offset: int) -> Iterator[int]:
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size:
                yield segment.address + offset - segment.offset

    def _string(self, table: _Table, at: int) -> str:
        start = table.strings + at
        return self._map[start : self._map.find(b"\0", start)].decode("utf-8", "replace")


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
