"""GPUs of AMD's, what breaks off in the thread of a driver, clocks of time stamps, and who computes on a GPU at all."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from perfdoctor.probes import gpu
from perfdoctor.probes.gpu import GpuProbe, gpus_of
from perfdoctor.probes.readers.amd import NOT_INSTALLED, AmdDriver
from perfdoctor.probes.readers.gpus import Users
from perfdoctor.probes.readers.nvidia import lag_of, pci_address
from perfdoctor.probes.readers.process import device_files
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Reading, Sample, Unavailable
from tests.builders import stand_ins
from tests.processes.watching import Watched, complaints, facts, plant, readings


class Refusing:
    """A driver that is not there."""

    spent_ns = 0

    def open(self) -> str:
        return "No such driver."

    def devices(self) -> list[object]:
        return []

    def missing(self) -> Iterator[Unavailable]:
        return iter(())

    def close(self) -> None:
        pass


class Breaking(Refusing):
    """A driver with one device, whose library raises what nobody thought of at the second round."""

    subject = "gpu:0"
    users = Users({11: None}, {})

    def __init__(self) -> None:
        self.rounds = 0

    def open(self) -> None:  # type: ignore[override]
        return None

    def devices(self) -> list[object]:
        return [self]

    def facts(self) -> Iterator[Sample]:
        return iter(())

    def fast(self) -> Iterator[Sample]:
        self.rounds += 1
        yield Reading(1, "gpu", self.subject, "power_watts", 100 * self.rounds)
        if self.rounds == 2:
            raise ZeroDivisionError("no such thing")

    def slow(self) -> Iterator[Sample]:
        return iter(())

    def look_for_users(self, job: Iterable[int], all_visible: bool) -> Iterator[Sample]:
        return iter(())


def test_what_breaks_in_the_thread_is_told_and_the_next_round_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "NvidiaDriver", Breaking)
    probe = GpuProbe()
    seen = [*probe.open(Watched(11))]
    for _ in range(2):
        seen += probe.sample(1)
        while probe._rounds.under_way:
            time.sleep(0.001)
    seen += probe.close()
    (told,) = complaints(seen)
    assert "ZeroDivisionError: no such thing" in told.reason
    assert [one.value for one in seen if isinstance(one, Reading) and one.name == "power_watts"] == [100, 200, 300]


def with_amd_gpu(monkeypatch: pytest.MonkeyPatch, root: Path, **answers: object) -> None:
    """A machine with one GPU of AMD's, which processes 10 and 20 compute on."""
    monkeypatch.setattr(gpu, "NvidiaDriver", Refusing)
    monkeypatch.setitem(sys.modules, "amdsmi", stand_ins.amdsmi(**answers))
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to("pid:[4026531836]")


def look(monkeypatch: pytest.MonkeyPatch, root: Path, **answers: object) -> list[Sample]:
    with_amd_gpu(monkeypatch, root, **answers)
    probe = GpuProbe(root)
    return [*probe.open(Watched(10)), *probe.close()]


def test_amd_gpus_have_the_same_readings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = look(monkeypatch, tmp_path)
    values = {name: value for (subject, name), value in readings(seen).items() if subject == "gpu:0"}
    assert values == pytest.approx({
        "busy_fraction": 0.93,
        "memory_busy_fraction": 0.41,
        "memory_used_bytes": 1 << 30,
        "memory_total_bytes": 196592 << 20,
        "power_watts": 500,
        "power_limit_watts": 750,
        "power_limit_default_watts": 750,
        "energy_joules_total": 30.6,
        "sm_clock_hertz": 2.1e9,
        "sm_clock_max_hertz": 2.1e9,
        "memory_clock_hertz": 2.1e9,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "job_processes": 1,
        "foreign_processes": 1,
        "job_memory_bytes": 4096,
        "foreign_memory_bytes": None,
        "foreign_sm_fraction": None,
    })  # fmt: skip
    assert facts(seen)["gpu:0", "name"] == "Instinct stand-in"
    assert complaints(seen) == []


def test_what_amdsmi_does_not_say_is_told_once_and_never_a_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = look(monkeypatch, tmp_path, get_gpu_activity="error: AMDSMI_STATUS_NOT_SUPPORTED")
    assert ("gpu:0", "busy_fraction") not in readings(seen)
    (told,) = complaints(seen)
    assert "amdsmi_get_gpu_activity" in told.reason
    assert "AMDSMI_STATUS_NOT_SUPPORTED" in told.reason


BUS = "sys/bus/pci/devices/0000:c1:00.0"
KFD = "sys/class/kfd/kfd"
KERNEL_SHOWS = {
    f"{KFD}/topology/nodes/0/gpu_id": "0",
    f"{KFD}/topology/nodes/0/properties": "cpu_cores_count 96\nlocation_id 0",
    f"{KFD}/topology/nodes/10/gpu_id": "51110",
    f"{KFD}/topology/nodes/10/properties": "simd_count 1216\nlocation_id 49408\ndomain 0",
    f"{BUS}/gpu_busy_percent": "93",
    f"{BUS}/mem_busy_percent": "41",
    f"{BUS}/mem_info_vram_used": str(1 << 30),
    f"{BUS}/mem_info_vram_total": str(192 << 30),
    f"{BUS}/pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz",
    f"{BUS}/product_name": "Instinct stand-in",
    f"{BUS}/hwmon/hwmon4/power1_input": "500000000",
    f"{BUS}/hwmon/hwmon4/power1_cap": "750000000",
    f"{BUS}/hwmon/hwmon4/freq1_input": "1987000000",
    f"{BUS}/hwmon/hwmon4/temp2_input": "61000",
    f"{KFD}/proc/10/queues/1/gpuid": "51110",
    f"{KFD}/proc/10/vram_51110": "4096",
    f"{KFD}/proc/20/queues/3/gpuid": "51110",
    f"{KFD}/proc/20/vram_51110": "100",
    f"{KFD}/proc/30/vram_51110": "0",  # has opened the driver, and computes nowhere
}


def test_without_its_package_amd_gpus_are_read_from_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(tmp_path, KERNEL_SHOWS)
    monkeypatch.setattr(gpu, "AmdDriver", Refusing)
    seen = look(monkeypatch, tmp_path)
    values = {name: value for (subject, name), value in readings(seen).items() if subject == "gpu:0"}
    assert values == pytest.approx({
        "busy_fraction": 0.93,
        "memory_busy_fraction": 0.41,
        "memory_used_bytes": 1 << 30,
        "memory_total_bytes": 192 << 30,
        "power_watts": 500,
        "power_limit_watts": 750,
        "sm_clock_hertz": 1.987e9,
        "sm_clock_max_hertz": 2.1e9,
        "temperature_celsius": 61,
        "job_processes": 1,
        "foreign_processes": 1,
        "job_memory_bytes": 4096,
        "foreign_memory_bytes": 100,
        "foreign_sm_fraction": None,
    })  # fmt: skip
    assert facts(seen)["gpu:0", "pci_address"] == "0000:c1:00.0"
    assert complaints(seen) == []


def test_beside_nvidias_driver_an_amd_gpu_only_displays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(tmp_path, {**KERNEL_SHOWS, "proc/driver/nvidia/version": "x"})
    monkeypatch.setattr(gpu, "AmdDriver", Refusing)
    seen = look(monkeypatch, tmp_path)
    assert not any(subject == "gpu:0" for subject, _ in readings(seen))
    assert len(complaints(seen)) == 1


def open_files(root: Path, pid: int, *paths: str) -> None:
    """Descriptors of a process."""
    (root / f"proc/{pid}/fd").mkdir(parents=True)
    for number, path in enumerate(paths):
        (root / f"proc/{pid}/fd/{number}").symlink_to(path)


def test_the_gpus_of_processes_are_those_that_their_driver_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_amd_gpu(monkeypatch, tmp_path)
    open_files(tmp_path, 10, "/dev/null", "/dev/kfd")
    open_files(tmp_path, 30, "/dev/kfd")
    open_files(tmp_path, 40, "/dev/null")
    found = gpus_of((10, 30, 40, 50), tmp_path)
    # 30 has opened the driver's file and no context yet; 50 is gone, or closed to us, and on no GPU.
    assert found == {10: ("gpu:0",), 30: (), 40: (), 50: ()}


def test_the_gpus_of_a_process_are_unknown_where_no_driver_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "NvidiaDriver", Refusing)
    monkeypatch.setattr(gpu, "AmdDriver", Refusing)
    open_files(tmp_path, 10, "/dev/nvidia-uvm")
    open_files(tmp_path, 40, "/dev/null")
    assert gpus_of((10, 40, 50), tmp_path) == {10: None, 40: (), 50: None}


def test_without_its_package_a_machine_with_amd_gpus_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "NvidiaDriver", Refusing)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert AmdDriver().open() == NOT_INSTALLED
    (told,) = complaints(GpuProbe(plant(tmp_path, {"dev/kfd": ""})).open(Watched(10)))
    assert "amdsmi" in told.reason
    assert "pip install amdsmi" in told.enable


def test_the_clock_of_a_time_stamp_is_the_one_that_fits() -> None:
    clocks = {"monotonic": 50 * NS_PER_S, "boottime": 90 * NS_PER_S, "realtime": 10**18}
    assert lag_of(49_800_000, clocks) == ("monotonic", pytest.approx(0.2))
    assert lag_of(89_900_000, clocks) == ("boottime", pytest.approx(0.1))
    assert lag_of(10**15 - 300_000, clocks) == ("realtime", pytest.approx(0.3))
    assert lag_of(70_000_000, clocks) is None


def test_address_of_a_gpu_on_the_bus() -> None:
    assert pci_address("00000000:1A:00.0") == "0000:1a:00.0"


def with_files(root: Path, pid: int, *paths: str) -> None:
    folder = root / f"proc/{pid}/fd"
    folder.mkdir(parents=True)
    for number, path in enumerate(paths):
        (folder / str(number)).symlink_to(path)


@pytest.mark.parametrize(
    ("paths", "driver"),
    [
        (("/dev/null", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"), "nvidia"),
        (("/dev/nvidiactl", "/dev/nvidia0"), None),  # asks NVML, and computes nowhere
        (("/dev/dri/renderD128", "/dev/kfd"), "kfd"),
        (("/dev/dri/renderD128",), "dri"),
        (("/dev/dri/card0", "pipe:[1]"), None),
    ],
)
def test_open_files_tell_who_computes_on_a_gpu(tmp_path: Path, paths: tuple[str, ...], driver: str | None) -> None:
    with_files(tmp_path, 7, *paths)
    assert device_files(7, tmp_path) == driver


class Family(Watched):
    """A trainer, 10, and a loader worker that was forked from it, 11."""

    def forked_pids(self) -> tuple[int, ...]:
        return (11,)

    def parent_of(self, pid: int) -> int | None:
        return {11: 10}.get(pid)


def test_who_computes_on_a_gpu_is_told_once_whatever_the_driver_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "NvidiaDriver", Refusing)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with_files(tmp_path, 10)
    with_files(tmp_path, 11)
    probe = GpuProbe(tmp_path)
    assert facts(probe.open(Family(10, 11, torch=True))) == {}
    for pid in (10, 11):
        (tmp_path / f"proc/{pid}/fd/9").symlink_to("/dev/nvidia-uvm")
    later = time.monotonic_ns() + 60 * NS_PER_S
    assert facts(probe.sample(later)) == {("pid:10", "device_files"): "nvidia"}
    assert facts(probe.sample(2 * later)) == {}
    list(probe.close())


def test_a_process_on_no_gpu_has_no_files_of_drivers() -> None:
    assert device_files(os.getpid()) is None
