"""Processes outside of the job at the other ends of what it waits to read from.

A job may be fed through a named pipe, a socket or a local server by a process that is no child of it. Whoever is waited
for is looked for once per channel, some processes of the machine at a time.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from itertools import islice

from perfdoctor.probes.readers.channel_ends import End, awaited_ends, serves

# In one search: so many waiting processes are asked for what they wait on, and so many others whether they serve it.
_ASKED, _SEARCHED = 8, 64
MOST_PEERS = 16


class Peers:
    """Finds them.

    Attributes:
        found: by process, whom it serves and through what.
    """

    def __init__(self) -> None:
        self.found: dict[int, tuple[int, str]] = {}
        self._wanted: dict[End, int] = {}
        self._known: set[End] = set()
        self._searched_for: dict[End, int] = {}
        self._search: Iterator[int] = iter(())
        self._turn = 0

    def search(self, waiting: Iterable[int], members: Container[int]) -> list[int]:
        """Searches on; returns peers that are new.

        Args:
            waiting: processes of the job that may wait for others.
            members: those that need not be found.
        """
        asked = sorted(waiting)
        for pid in (asked[(self._turn + number) % len(asked)] for number in range(min(_ASKED, len(asked)))):
            for end in awaited_ends(pid):
                if end not in self._known:
                    self._known.add(end)
                    self._wanted[end] = pid
        self._turn += _ASKED
        searched = list(islice(self._search, _SEARCHED))
        if not searched and self._wanted:
            # What could not be found in one pass over all processes is at an end that cannot be seen.
            self._searched_for, self._wanted = self._wanted, {}
            self._search = iter([int(name) for name in os.listdir("/proc") if name.isdigit()])
            searched = list(islice(self._search, _SEARCHED))
        return [pid for pid in searched if self._serves(pid, members)]

    def _serves(self, pid: int, members: Container[int]) -> bool:
        if pid in members or pid in self.found or pid == os.getpid() or len(self.found) >= MOST_PEERS:
            return False
        for end, reader in self._searched_for.items():
            if pid != reader and serves(end, pid):
                self.found[pid] = reader, end.kind
                return True
        return False
