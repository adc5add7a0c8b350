"""Processes outside of the job at the other ends of what it waits to read from.

A job may be fed through a named pipe, a socket or a local server by a process that is no child of it. Whoever is waited
for is looked for once per channel, some processes of the machine at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Set

from perfdoctor.probes.readers.channel_ends import End, awaited_ends, serves
from perfdoctor.probes.readers.procfs import ancestors_of

# In one search: so many waiting processes are asked for what they wait on, and others whether they serve it for so many
# seconds of CPU time. A host of 100 processes is gone over in 2 ms (measured).
_ASKED, _SEARCH_S = 8, 0.004
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
        self._unsearched: list[int] = []
        self._turn = 0

    def search(self, waiting: Iterable[int], members: Set[int]) -> list[int]:
        """Searches on; returns peers that are new.

        Args:
            waiting: processes of the job that may wait for others.
            members: those that need not be found, nor whoever they have started: most of that is over soon.
        """
        asked = sorted(waiting)
        for pid in (asked[(self._turn + number) % len(asked)] for number in range(min(_ASKED, len(asked)))):
            for end in awaited_ends(pid):
                if end not in self._known:
                    self._known.add(end)
                    self._wanted[end] = pid
        self._turn += _ASKED
        return list(self._search_on(members))

    def _search_on(self, members: Set[int]) -> Iterator[int]:
        """Goes on over the processes of the machine, or begins anew where something new is waited for."""
        end_s = time.thread_time() + _SEARCH_S
        if self._wanted and not self._unsearched:
            # What could not be found in one pass over all processes is at an end that cannot be seen.
            self._searched_for, self._wanted = self._wanted, {}
            self._unsearched = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        while self._unsearched and time.thread_time() < end_s:
            pid = self._unsearched.pop()
            if self._serves(pid, members):
                yield pid

    def _serves(self, pid: int, members: Set[int]) -> bool:
        if pid in members or pid in self.found or pid == os.getpid() or len(self.found) >= MOST_PEERS:
            return False
        for end, reader in self._searched_for.items():
            if pid != reader and serves(end, pid) and members.isdisjoint(ancestors_of(pid)):
                self.found[pid] = reader, end.kind
                return True
        return False
