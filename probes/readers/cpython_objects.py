"""Objects of a running CPython, read from its memory without stopping anybody: texts, numbers, dictionaries, modules.

What is read of an object, by version: Include/cpython/unicodeobject.h, Include/cpython/dictobject.h,
Include/cpython/object.h, Include/cpython/longintrepr.h, Include/internal/pycore_dict.h, pycore_object.h and
Objects/moduleobject.c; up to 3.10 Objects/dict-common.h. Nothing is locked meanwhile: what is read may be torn, and
then it is nothing, or fits nothing that the caller knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from perfdoctor.probes.readers.process_memory import Memory

_TYPE = 8  # of an object, after its count of references
_TYPE_NAME = 24  # in a type object
_MODULE_DICT = 16  # in a module
# In a type object: the size of its instances, its flags, and where an instance has its dictionary.
_BASIC_SIZE, _FLAGS, _DICTIONARY = 32, 168, 288
_INLINE_VALUES, _MANAGED_DICTIONARY = 1 << 2, 1 << 4  # of these flags, since 3.13 and 3.11
# In a dictionary: how many it has, where its table is, and its values, if objects of one class share the table.
_USED, _KEYS, _VALUES = 16, 32, 40
# What the entries of a table are: a hash, a key and a value; or a name and a value, or, where the table is shared, no
# value.
_GENERAL, _NAMED, _SHARED = 0, 1, 2
_MOST_ENTRIES = 1 << 16
_MOST_SHARED = 256  # names in a table that a class's instances share: 30 of them, or 15 at first (Objects/dictobject.c)
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
        self._version = version
        self._texts = (40, 56) if version >= (3, 12) else (48, 72)
        # Where a class has the table of names of its instances' attributes, and where values begin that go with it.
        self._shared_table = 880 if version >= (3, 12) else 872
        self._values_head = 8 if version >= (3, 13) else 0

    def text(self, address: int) -> str | None:
        """What a string says; None if it is none."""
        return text_at(self._memory, address, *self._texts)

    def type_name(self, address: int) -> str | None:
        """The name of an object's type; None where that cannot be read."""
        kind = self._memory.word(address + _TYPE)
        name = self._memory.word(kind + _TYPE_NAME) if kind else None
        return self._memory.read(name, 64).split(b"\0")[0].decode(errors="replace") if name else None

    def number(self, address: int) -> int | None:
        """An integer from 0 to 2**30 - 1; None if it is none of these."""
        words = self._memory.words(address + 16, 2) if self._is(address, "int") else ()
        if len(words) < 2:
            return None
        size, digit = words[0], words[1] & (1 << 30) - 1
        if self._version >= (3, 12):  # the sign is in the three lowest bits: 0 if positive, 1 for zero
            size = {1: 0, 8: 1}.get(size, -1)
        return {0: 0, 1: digit}.get(size)

    def size(self, dictionary: int) -> int | None:
        """How many entries a dictionary has; None if it is no dictionary."""
        return self._memory.word(dictionary + _USED) if self._is(dictionary, "dict") else None

    def entries(self, dictionary: int) -> Iterator[tuple[int, int]]:
        """Addresses of the keys and values of a dictionary, in order of their insertion."""
        keys, values = self._memory.word(dictionary + _KEYS), self._memory.word(dictionary + _VALUES)
        if not keys:
            return
        if values:
            yield from self._entries_apart(keys, values + self._values_head)
            return
        first, words, count = self._table(keys)
        found = iter(self._memory.words(keys + first, words * min(count, _MOST_ENTRIES)))
        while entry := tuple(islice(found, words)):
            if len(entry) == words and all(entry[-2:]):
                yield entry[-2], entry[-1]

    def get(self, dictionary: int, key: str) -> int | None:
        """The address of what a dictionary has under a text; None if nothing."""
        return next((value for name, value in self.entries(dictionary) if self.text(name) == key), None)

    def attribute(self, address: int, name: str) -> int | None:
        """The address of what an object itself has under a name, but for slots; None if nothing."""
        kind = self._memory.word(address + _TYPE)
        if not kind:
            return None
        dictionary, values = self._own_dictionary(address, kind)
        if dictionary:
            return self.get(dictionary, name)
        keys = self._memory.word(kind + self._shared_table) if values else None
        entries = self._entries_apart(keys, values) if keys else ()
        return next((value for key, value in entries if self.text(key) == name), None)

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

    def _is(self, address: int, kind: str) -> bool:
        return self.type_name(address) == kind

    def _own_dictionary(self, address: int, kind: int) -> tuple[int, int]:
        """Where an object has its dictionary, or where its values are without one; 0 for what there is not."""
        flags = self._memory.word(kind + _FLAGS) or 0
        if self._version < (3, 11):
            return self._memory.word(address + (self._memory.word(kind + _DICTIONARY) or 0)) or 0, 0
        if not flags & _MANAGED_DICTIONARY:
            return 0, 0
        if self._version >= (3, 13) and flags & _INLINE_VALUES:
            inline = address + (self._memory.word(kind + _BASIC_SIZE) or 0)
            if self._memory.read(inline + 3, 1) == b"\1":  # they are valid
                return 0, inline + self._values_head
        before = self._memory.word(address - 24) or 0
        if self._version == (3, 12):
            return (0, before + 1) if before & 1 else (before, 0)
        return before, 0 if self._version >= (3, 13) else self._memory.word(address - 32) or 0

    def _entries_apart(self, keys: int, values: int) -> Iterator[tuple[int, int]]:
        """As ``entries``, of a table whose values are elsewhere."""
        first, words, count = self._table(keys)
        count = min(count, _MOST_SHARED)
        names = self._memory.words(keys + first, words * count)[words - 2 :: words]
        pairs = zip(names, self._memory.words(values, count), strict=False)  # either may be torn
        yield from ((name, value) for name, value in pairs if name and value)

    def _table(self, keys: int) -> tuple[int, int, int]:
        """Where the entries of a table begin, how many words each has, and how many there are."""
        if self._version >= (3, 11):
            head = self._memory.read(keys, 32)
            if len(head) < 32 or head[10] not in (_GENERAL, _NAMED, _SHARED) or head[9] > 32:
                return 0, 2, 0
            return 32 + (1 << head[9]), 3 if head[10] == _GENERAL else 2, int.from_bytes(head[24:32], "little")
        counts = self._memory.words(keys, 5)
        if len(counts) < 5:
            return 0, 2, 0
        slots = counts[1]
        width = next(size for size in (1, 2, 4, 8) if slots < 1 << 8 * size)
        return 40 + slots * width, 3, counts[4]
