"""Which threads of a process are sampled, from trees of /proc."""

from pathlib import Path

import pytest

from perfdoctor.probes import code
from perfdoctor.probes.code import _SampledProcess
from perfdoctor.probes.readers.symbols import Images
from perfdoctor.recording.clock import NS_PER_S, now_ns
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


@pytest.mark.parametrize(("file", "found"), [("/dev/kfd", [8]), ("/dev/nvidia-uvm", [8]), ("/dev/null", [])])
def test_busy_threads_are_sampled_where_a_gpus_driver_names_none(tmp_path: Path, file: str, found: list[int]) -> None:
    threads(tmp_path, {7: "python", 8: "python"})
    (tmp_path / "proc/7/fd").mkdir()
    (tmp_path / "proc/7/fd/3").symlink_to(file)
    process = _SampledProcess(7, tmp_path, Images())
    now = now_ns()
    for second, ran_s in enumerate((0.0, 0.0, 2.0)):
        plant(tmp_path, {f"proc/7/task/{tid}/schedstat": f"{ran:.0f} 0 1\n" for tid, ran in ((7, 0), (8, ran_s * 1e9))})
        process.new_threads(b"pt_autograd")
        process.look_for_driver(now + second * 2 * NS_PER_S)
        busy = process.busy_threads(now + second * 2 * NS_PER_S)
    assert busy == found
