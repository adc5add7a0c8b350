"""Objects of a running CPython, read from its memory without stopping anybody: texts, dictionaries, modules by name.

What is read of an object, by version: Include/cpython/unicodeobject.h, Include/cpython/dictobject.h,
Include/internal/pycore_dict.h and Objects/moduleobject.c; up to 3.10 Objects/dict-common.h. Nothing is locked
meanwhile: what is read may be torn, and then it is nothing, or fits nothing that the caller knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from perfdoctor.probes.readers.process_memory import Memory

_TYPE = 8  # of an object, after its count of references
_TYPE_NAME = 24  # in a type object
_MODULE_DICT = 16  # in a module
_USED, _KEYS = 16, 32  # in a dictionary: how many it has, and where its table is
# What the entries of a table are: a hash, a key and a value; or a name and a value. Those of tables that objects of one
# class share are names only.
_GENERAL, _NAMED = 0, 1
_MOST_ENTRIES = 1 << 16
_LONGEST_TEXT = 1024
_INTERPRETER_WORDS = 2048  # the modules are within the first 16 KiB of an interpreter's state
_FEWEST_MODULES = 20  # of a dictionary that may be sys.modules
OLDEST, NEWEST = (3, 8), (3, 13)


def text_at(memory: Memory, address: int, ascii_text: int, text: int) -> str | None:
    """A compact string (PEP 393): its length at 16, its kind in bits 2 to 4 and "is ASCII" in bit 6 at 32.

    Args:
        memory: of the process.
        address: of the string.
        ascii_text: size of its head, if it is plain ASCII.
        text: size of it otherwise.

    Returns:
        None where there is no such string, or a very long one.
    """
    head = memory.read(address, 36)
    if len(head) < 36:
        return None
    length, state = int.from_bytes(head[16:24], "little"), head[32]
    width = state >> 2 & 7
    encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(width)
    if encoding is None or not state & 1 << 5 or length > _LONGEST_TEXT:
        return None
    data = memory.read(address + (ascii_text if state & 1 << 6 else text), length * width)
    return data.decode(encoding, errors="replace") if len(data) == length * width else None


class Objects:
    """Reads objects of one process.

    Args:
        memory: of the process.
        version: of its CPython, from ``OLDEST`` to ``NEWEST``.
    """

    def __init__(self, memory: Memory, version: tuple[int, int]) -> None:
        self._memory = memory
        self._texts = (40, 56) if version >= (3, 12) else (48, 72)
        self._kinds = version >= (3, 11)

    def text(self, address: int) -> str | None:
        """What a string says; None if it is none."""
        return text_at(self._memory, address, *self._texts)

    def type_name(self, address: int) -> str | None:
        """The name of an object's type; None where that cannot be read."""
        kind = self._memory.word(address + _TYPE)
        name = self._memory.word(kind + _TYPE_NAME) if kind else None
        return self._memory.read(name, 64).split(b"\0")[0].decode(errors="replace") if name else None

    def size(self, dictionary: int) -> int | None:
        """How many entries a dictionary has; None if it is no dictionary."""
        return self._memory.word(dictionary + _USED) if self.type_name(dictionary) == "dict" else None

    def entries(self, dictionary: int) -> Iterator[tuple[int, int]]:
        """Addresses of the keys and values of a dictionary, in order of their insertion.

        None of an object's own dictionary that shares its keys with others of its class.
        """
        keys = self._memory.word(dictionary + _KEYS)
        if not keys:
            return
        first, words, count = self._table(keys)
        found = iter(self._memory.words(keys + first, words * min(count, _MOST_ENTRIES)))
        while entry := tuple(islice(found, words)):
            if len(entry) == words and all(entry[-2:]):
                yield entry[-2], entry[-1]

    def get(self, dictionary: int, key: str) -> int | None:
        """The address of what a dictionary has under a text; None if nothing."""
        return next((value for name, value in self.entries(dictionary) if self.text(name) == key), None)

    def module(self, interpreter: int, name: str) -> int | None:
        """The address of the dictionary of a module that is imported; None if it is not, or cannot be found.

        Args:
            interpreter: where its state is: ``sys.modules`` is among the first dictionaries that it points at.
            name: of the module.
        """
        for modules in dict.fromkeys(self._memory.words(interpreter, _INTERPRETER_WORDS)):
            aligned = modules and modules % 8 == 0
            if aligned and (self.size(modules) or 0) >= _FEWEST_MODULES and self.get(modules, "sys"):
                module = self.get(modules, name)
                if module is not None and self.type_name(module) == "module":
                    return self._memory.word(module + _MODULE_DICT)
        return None

    def _table(self, keys: int) -> tuple[int, int, int]:
        """Where the entries of a table begin, how many words each has, and how many there are."""
        if self._kinds:
            head = self._memory.read(keys, 32)
            if len(head) < 32 or head[10] not in (_GENERAL, _NAMED) or head[9] > 32:
                return 0, 2, 0
            return 32 + (1 << head[9]), 3 if head[10] == _GENERAL else 2, int.from_bytes(head[24:32], "little")
        counts = self._memory.words(keys, 5)
        if len(counts) < 5:
            return 0, 2, 0
        slots = counts[1]
        width = next(size for size in (1, 2, 4, 8) if slots < 1 << 8 * size)
        return 40 + slots * width, 3, counts[4]
