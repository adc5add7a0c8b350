"""What is read of an interpreter while it goes on may have been given back meanwhile."""

import ctypes
from pathlib import Path

import pytest

from perfdoctor.probes.readers.cpython import Layout
from perfdoctor.probes.readers.process_memory import Memory


@pytest.mark.parametrize(("word", "ident"), [(0x7F57_C0AE_D640, 0x7F57_C0AE_D640), ((1 << 63) + 5, None)])
def test_what_is_no_address_is_no_threads_identifier(word: int, ident: int | None) -> None:
    """A recording could not hold it: attach had ended in an ``OverflowError``."""
    state = ctypes.c_uint64(word)
    memory = Memory(Path("/proc/self"))
    try:
        layout = Layout(holder=None, collecting=0, thread_id=0, native_id=0)
        assert layout.ident(memory, ctypes.addressof(state)) == ident
    finally:
        memory.close()
