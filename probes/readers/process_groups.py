"""Which rank a process is, of how many, as torch.distributed keeps it: read from memory, without stopping anybody.

Ranks that get their numbers as arguments of ``init_process_group``, as those do that ``torch.multiprocessing`` starts,
have no variable that says them. torch keeps them in its default group: how many ranks that has is in the module's
table of groups, ``_pg_group_ranks`` (torch/distributed/distributed_c10d.py); this one's number is in the C++ object
behind the group, which says how many there are as well (``rank_`` and ``size_`` of torch 2, in
torch/csrc/distributed/c10d/ProcessGroup.hpp). A number counts only where both agree. One process takes 4 ms, and 10 ms
where its interpreter is not known yet (torch 2.13, CPython 3.11).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes.readers.cpython import LayoutError, Layouts
from perfdoctor.probes.readers.cpython_objects import NEWEST, OLDEST, Objects
from perfdoctor.probes.readers.process import python_of
from perfdoctor.probes.readers.process_memory import Memory
from perfdoctor.probes.readers.thread_ids import ThreadIds

_MODULE = "torch.distributed.distributed_c10d"
_WRAPPED = 16  # the C++ object of one that pybind11 wraps
# Where a group has its rank and size: after its table of functions, its counts of references (of 4 bytes each, before
# torch 2.2 of 8) and its store.
_RANK_AND_SIZE = (24, 32)
_INTERPRETER = 2  # word of a thread's state


class DefaultGroup(NamedTuple):
    """What torch's default group says of a process.

    Attributes:
        rank: its number.
        world: how many there are.
        init_method: how they met; "" if they were given a store.
    """

    rank: int
    world: int
    init_method: str


class DefaultGroups:
    """Reads those of several processes.

    Args:
        root: where /proc is.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._layouts = root, Layouts()

    def of(self, pid: int) -> DefaultGroup | None:
        """The default group of a process; None where it has none, or that cannot be read."""
        process = self._root / f"proc/{pid}"
        try:
            python = python_of(pid, self._root)
            if python is None or python.version is None or not OLDEST <= python.version <= NEWEST:
                return None
            ids, memory = ThreadIds(process), Memory(process)
        except OSError:
            return None
        try:
            holder = self._layouts.of(process, memory, ids.inner()).holder
            state = memory.word(holder) if holder is not None else None
            interpreter = memory.word(state + 8 * _INTERPRETER) if state else None
            return _read(Objects(memory, python.version), memory, interpreter) if interpreter else None
        except (OSError, LayoutError):
            return None
        finally:
            memory.close()


def _read(objects: Objects, memory: Memory, interpreter: int) -> DefaultGroup | None:
    module = objects.module(interpreter, _MODULE)
    table = objects.get(module, "_pg_group_ranks") if module else None
    # The default group is made before all others, which have their ranks from it.
    group, ranks = next(objects.entries(table), (0, 0)) if table else (0, 0)
    world = objects.size(ranks) if ranks else None
    wrapped = memory.word(group + _WRAPPED) if world else None
    if not module or not world or not wrapped:
        return None
    for offset in _RANK_AND_SIZE:
        numbers = memory.read(wrapped + offset, 8)
        rank, size = struct.unpack("<ii", numbers) if len(numbers) == 8 else (-1, -1)
        if size == world and 0 <= rank < size:
            given = objects.get(module, "_default_pg_init_method")
            return DefaultGroup(rank, world, (objects.text(given) or "") if given else "")
    return None
