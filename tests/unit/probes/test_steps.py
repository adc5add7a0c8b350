"""Probes of the kernel's in a process, which nothing may leave behind; here they only note that they are open."""

import errno
from pathlib import Path

import pytest

from perfdoctor.probes import steps
from perfdoctor.probes.steps import _CountedProcess, _Function
from perfdoctor.recording.clock import NS_PER_S

FUNCTIONS = [_Function("backward", Path("lib"), 1), _Function("optimizer", Path("lib"), 2)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Thread and function of each probe that is open. Thread 8 has ended, and 9 may have no second probe."""
    found: list[tuple[int, int]] = []

    class Noted:
        def __init__(self, tid: int, file: Path, offset: int, only: int | None) -> None:
            if tid == 8:
                raise ProcessLookupError(errno.ESRCH, "No such process")
            if (tid, offset) == (9, 2):
                raise OSError(errno.EMFILE, "Too many open files")
            self._key = tid, offset
            found.append(self._key)

        def read(self) -> list[int]:
            return []

        def close(self) -> None:
            found.remove(self._key)

    monkeypatch.setattr(steps, "CallProbe", Noted)
    return found


def test_a_process_that_cannot_be_watched_whole_keeps_no_probe(opened: list[tuple[int, int]], tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Too many"):
        _CountedProcess(9, tmp_path, FUNCTIONS, 0)
    assert opened == []


def test_a_thread_that_has_just_ended_ends_no_counting(opened: list[tuple[int, int]], tmp_path: Path) -> None:
    process = _CountedProcess(7, tmp_path, FUNCTIONS, 0)
    for time_s in (3, 6):
        for tid in (7, 8, 11):
            (tmp_path / str(tid)).mkdir(exist_ok=True)
            (tmp_path / str(tid) / "schedstat").write_text(f"{time_s * 1000} 0 0")
        process.look_for_threads(time_s * NS_PER_S)
    assert opened == [(7, 1), (7, 2), (11, 1), (11, 2)]
    process.close()
    assert opened == []
