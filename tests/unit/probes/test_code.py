"""Which threads of a process are sampled, from trees of /proc."""

from pathlib import Path

import pytest

from perfdoctor.probes import code
from perfdoctor.probes.code import _SampledProcess
from perfdoctor.probes.readers.symbols import Images
from tests.processes.watching import plant

NAMES = {7: "python", 8: "python", 9: "pt_autograd_0", 10: "pt_nccl_watchdg", 11: "pt_autograd_1"}


def threads(root: Path, names: dict[int, str]) -> Path:
    return plant(root, {f"proc/7/task/{tid}/comm": f"{name}\n" for tid, name in names.items()})


def test_of_many_threads_some_are_asked_in_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_THREADS_ASKED", 2)
    process = _SampledProcess(7, threads(tmp_path, NAMES), Images())
    found: set[int] = set()
    calls = 0
    while process.has_unasked:
        found.update(process.new_threads(b"pt_autograd"))
        calls += 1
        assert calls < 10
    assert found == {9, 11}
    assert calls > 2


def test_a_thread_is_asked_again_for_it_is_listed_before_it_has_its_name(tmp_path: Path) -> None:
    process = _SampledProcess(7, threads(tmp_path, {7: "python", 9: "python"}), Images())
    assert process.new_threads(b"pt_autograd") == []
    threads(tmp_path, {9: "pt_autograd_0"})
    assert process.new_threads(b"pt_autograd") == [9]
    assert not process.has_unasked
