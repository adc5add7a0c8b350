"""Finds CPython's interpreter lock and collector in memory by what is peculiar to their structure.

Needed for 3.8 to 3.12, which do not publish where they lie. See ``perfdoctor.probes.readers.cpython`` for the
structures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfdoctor.probes.readers.process_memory import Memory

_SELF_WORDS = 9  # generations[3] are 3 x 24 bytes
_COLLECTING = 72 + 8 + 24 + 72  # generations, generation0, permanent generation, statistics
_LIST_WORDS = 64  # the head of the list of threads lies near the interpreter state's start
_THREAD_WORDS = 64  # so does thread_id in a thread state
_MOST_THREADS = 10_000


@dataclass(frozen=True, slots=True)
class LockSearch:
    """Looks for the interpreter lock in memory that may hold it.

    Attributes:
        native_id: offset of the kernel's thread id in glibc's thread descriptor.
        tids: the process's threads, as its own pid namespace counts.
    """

    memory: Memory
    native_id: int
    tids: frozenset[int]

    def run(self, base: int, words: Sequence[int], interval: int | None) -> Iterator[tuple[int, int, int]]:
        """Address of ``last_holder``, interpreter and offset of ``thread_id`` for all that looks like the
        lock.

        Args:
            base: address of the first word.
            words: the memory to search.
            interval: the switch interval in µs; None for any.
        """
        if interval is not None:
            places = [i for i, word in enumerate(words[:-2]) if word == interval]
        else:
            places = [i for i, word in enumerate(words[:-2]) if 0 < word < 1 << 32]
        for i in places:
            holder, locked = words[i + 1], words[i + 2]
            if locked & 0xFFFFFFFF > 1 or holder & 7 or not holder >> 16:
                continue
            found = self._lock(base + 8 * (i + 1), holder)
            if found is not None:
                yield found

    def _lock(self, address: int, holder: int) -> tuple[int, int, int] | None:
        states = _thread_states(self.memory, holder)
        thread_id = _thread_id_offset(self.memory, states, self.native_id, self.tids)
        if thread_id is None:
            return None
        interpreter = self.memory.words(holder, 3)[2]
        if interpreter <= address < interpreter + 8 * _LIST_WORDS:
            return None  # ``threads.head``, between two small numbers, looks the same
        return address, interpreter, thread_id


def _thread_states(memory: Memory, member: int) -> list[int]:
    """The interpreter's list of threads that this thread state is on, empty if it is on none."""
    found = memory.words(member, 3)
    if len(found) < 3:
        return []
    interpreter = found[2]
    states: list[int] = []
    state = member
    for _ in range(_MOST_THREADS):  # back to the head, which the interpreter points at
        previous = memory.word(state)
        if not previous:
            break
        state = previous
    if state not in memory.words(interpreter, _LIST_WORDS):
        return []
    while state and len(states) < _MOST_THREADS:
        found = memory.words(state, 3)
        if len(found) < 3 or found[2] != interpreter:
            return []
        states.append(state)
        state = found[1]
    return states if member in states else []


def _thread_id_offset(memory: Memory, states: list[int], native_id: int, tids: frozenset[int]) -> int | None:
    """Where thread states hold the ``pthread_t``: what is found there must lead to a living thread's id, in
    all of them."""
    for offset in range(24, 8 * _THREAD_WORDS, 8) if states else ():
        for state in states:
            pthread = memory.word(state + offset)
            if not pthread or memory.number(pthread + native_id) not in tids:
                break
        else:
            return offset
    return None


def collecting_flags(base: int, words: Sequence[int]) -> Iterator[int]:
    """Addresses of ``collecting`` after what looks like the collector's generations."""
    for i in range(_SELF_WORDS, len(words) - 14):
        first = i - _SELF_WORDS
        if words[i] == base + 8 * first:
            thresholds = [words[first + 3 * k + 2] & 0xFFFFFFFF for k in range(3)]
            links = [words[first + 3 * k + j] for k in range(3) for j in (0, 1)]
            flag = words[first + _COLLECTING // 8] & 0xFFFFFFFF
            if all(t < 1 << 31 for t in thresholds) and all(link >> 16 for link in links) and flag < 2:
                yield base + 8 * first + _COLLECTING
