"""The GPU probe without a driver, what it makes of known answers, and that nvidia-ml-py has all it asks for.

What real drivers answer is for a machine with a GPU; such tests skip here, with the reason.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.probes.gpu import GpuProbe, why_no_gpu
from perfdoctor.probes.readers import nvidia, nvidia_health, nvlink, nvml
from perfdoctor.probes.readers.gpus import sees_all_processes, tell_apart, total
from perfdoctor.probes.readers.nvidia import clock_limits
from perfdoctor.probes.readers.nvml import GPM_METRICS, Nvml, mean_use
from tests.processes.watching import complaints, looked, opened, plant, readings

pytestmark = pytest.mark.alone

GIB = 1 << 30


def has_driver() -> bool:
    door = Nvml()
    reason = door.open()
    door.close()
    return reason is None


@pytest.mark.skipif(has_driver(), reason="this machine has an NVIDIA driver")
def test_no_driver_is_one_complaint_with_a_remedy() -> None:
    probe = GpuProbe()
    samples = opened(probe, os.getpid())
    assert [type(sample).__name__ for sample in samples] == ["Unavailable"]
    assert "NVML" in complaints(samples)[0].reason
    assert "--gpus all" in complaints(samples)[0].enable
    assert looked(probe) == []
    assert list(probe.close()) == []


@pytest.mark.skipif(not has_driver(), reason="this machine has no NVIDIA driver: nothing real can be read")
def test_reads_a_real_gpu() -> None:
    probe = GpuProbe()
    samples = opened(probe, os.getpid()) + looked(probe)
    list(probe.close())
    seen = readings(samples)
    used, whole = seen["gpu:0", "memory_used_bytes"], seen["gpu:0", "memory_total_bytes"]
    assert used is not None
    assert whole is not None
    assert 0 < used < whole


def test_all_that_is_asked_for_exists_in_nvidia_ml_py() -> None:
    import pynvml

    text = "".join(Path(module.__file__ or "").read_text() for module in (nvidia, nvidia_health, nvlink, nvml))
    names = set(re.findall(r'"(nvml\w+|NVML_[A-Z_]+|c_nvml\w+)"', text)) - {"NVML_ERROR_"}
    names |= {f"NVML_GPM_METRIC_{metric}" for _, metric, _ in GPM_METRICS}
    names |= {f"NVML_ERROR_{name}" for name in nvml._LASTING}
    assert len(names) > 40
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []


def test_bits_of_clock_event_reasons_are_those_of_nvidia_ml_py() -> None:
    import pynvml

    def limits(*names: str) -> set[str]:
        bits = sum(getattr(pynvml, f"nvmlClocksEventReason{name}") for name in names)
        return {name.removeprefix("clocks_limited_by_") for name, value in clock_limits(bits).items() if value}

    assert limits("SwPowerCap") == {"power"}
    assert limits("HwPowerBrakeSlowdown") == {"power_brake"}
    assert limits("SwThermalSlowdown") == limits("HwThermalSlowdown") == {"heat"}
    assert limits("HwSlowdown") == {"hardware"}
    assert limits("GpuIdle", "ApplicationsClocksSetting", "DisplayClockSetting") == set()
    assert limits("SwPowerCap", "HwThermalSlowdown") == {"power", "heat"}


def test_tells_the_job_from_others() -> None:
    users = tell_apart({1: GIB, 2: 2 * GIB, 3: GIB}, [1, 3, 9], all_visible=True)
    assert users.job == {1: GIB, 3: GIB}
    assert users.foreign == {2: 2 * GIB}


@pytest.mark.parametrize(("listed", "job"), [([], None), ([4711], None), ([1, 4711], None), ([1], {1: GIB})])
def test_inside_a_container_others_are_unknown(listed: list[int], job: dict[int, int] | None) -> None:
    users = tell_apart(dict.fromkeys(listed, GIB), [1, 2], all_visible=False)
    assert users.job == job
    assert users.foreign is None


def test_memory_that_the_driver_does_not_tell_is_unknown() -> None:
    assert total({1: GIB, 2: None}) is None
    assert total(None) is None
    assert total({}) == 0
    assert total({1: 3, 2: 4}) == 7


def test_mean_use_leaves_out_samples_that_are_not_available() -> None:
    samples = [SimpleNamespace(pid=1, smUtil=percent) for percent in (20, 40, 0xFFFFFFFF)]
    assert mean_use(samples) == {1: 0.3}


def test_knows_the_first_pid_namespace(tmp_path: Path) -> None:
    link = tmp_path / "proc/self/ns/pid"
    link.parent.mkdir(parents=True)
    assert not sees_all_processes(tmp_path)
    link.symlink_to("pid:[4026531836]")
    assert sees_all_processes(tmp_path)
    link.unlink()
    link.symlink_to("pid:[4026532999]")
    assert not sees_all_processes(tmp_path)


def test_the_remedy_depends_on_what_the_machine_has(tmp_path: Path) -> None:
    assert "install the NVIDIA driver" in why_no_gpu(tmp_path, "x", "y")[1]
    refusal = why_no_gpu(plant(tmp_path / "amd", {"dev/kfd": ""}), "x", "y")
    assert "AMD's GPUs. y" in refusal.reason
    assert "amdsmi" in refusal.enable
    assert "reboot" in why_no_gpu(plant(tmp_path / "old", {"proc/driver/nvidia/version": "x"}), "x", "y")[1]


LOOK = """
import json, os, sys, time
from pathlib import Path
from perfdoctor.probes.gpu import GpuProbe
class Job:
    pids = torch_pids = lambda self: (int(os.environ.get("watched", os.environ["STAND_IN_JOB"])),)
probe = GpuProbe(Path(sys.argv[1]))
samples = [list(probe.open(Job()))]
for now in (1, 10**18):
    time.sleep(0.15)  # performance counters need 0.1 s between two looks
    samples.append(list(probe.sample(now)))
samples.append(list(probe.close()))
print(json.dumps([[round, type(sample).__name__, *sample] for round, some in enumerate(samples) for sample in some]))
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for NVML with")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parents[1] / "targets" / "nvml_stand_in.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    link = folder / "proc/self/ns/pid"
    link.parent.mkdir(parents=True)
    link.symlink_to("pid:[4026531836]")
    return folder


def rounds_of(stand_in: Path, **environment: str) -> list[list[Any]]:
    """As ``samples_of``, with the number of the call that yielded a sample before it; 3 is the close."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(stand_in), "STAND_IN_JOB": "10", "STAND_IN_OTHER": "20", **environment}
    command = [sys.executable, "-c", LOOK, str(stand_in)]
    return json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout)


def samples_of(stand_in: Path, **environment: str) -> list[list[Any]]:
    return [sample[1:] for sample in rounds_of(stand_in, **environment)]


def values_of(samples: list[list[Any]], kind: str = "Reading") -> dict[tuple[str, str], Any]:
    return {(subject, name): value for what, _, _, subject, name, value in (s for s in samples if s[0] == kind)}


def test_what_is_made_of_known_answers(stand_in: Path) -> None:
    samples = samples_of(stand_in)
    seen = {name: value for (subject, name), value in values_of(samples).items() if subject == "gpu:0"}
    assert seen == {
        "busy_fraction": 0.97,
        "memory_busy_fraction": 0.4,
        "memory_used_bytes": 20 * GIB,
        "memory_total_bytes": 80 * GIB,
        "power_watts": 350.5,
        "power_limit_watts": 700,
        "power_limit_default_watts": 800,
        "energy_joules_total": 7,
        "sm_clock_hertz": 1.41e9,
        "sm_clock_max_hertz": 1.98e9,
        "memory_clock_hertz": 2.619e9,
        "temperature_celsius": 61,
        "clocks_limited_by_power": 1,
        "clocks_limited_by_power_brake": 0,
        "clocks_limited_by_heat": 1,
        "clocks_limited_by_hardware": 0,
        "power_limited_seconds_total": 2.5,
        "heat_limited_seconds_total": 0,
        "pcie_sent_bytes_per_second": 1e6,
        "pcie_received_bytes_per_second": 3e6,
        "job_processes": 1,
        "foreign_processes": 1,
        "job_memory_bytes": 12 * GIB,
        "foreign_memory_bytes": 5 * GIB,
        "xid_errors_total": 0,
        "foreign_sm_fraction": 0.25,  # at the second slow look; what the first one finds is of before
    }
    assert 0.99 not in [s[-1] for s in samples if s[0] == "Reading"]
    assert values_of(samples)["gpu:0/pid:10", "memory_bytes"] == 12 * GIB
    assert ["Reading", "gpu:0/pid:10", "sm_fraction", 0.7] in [[s[0], *s[3:]] for s in samples]
    assert values_of(samples, "Fact") == {
        ("gpu:0", "name"): "Stand-in 100",
        ("gpu:0", "driver_version"): "555.42",
        ("gpu:0", "cuda_driver_version"): "12.4",
        ("gpu:0", "compute_capability"): "9.0",
        ("gpu:0", "gpm"): "no",
        ("gpu:0", "pci_address"): "0000:1a:00.0",
    }
    assert values_of(samples)["perfdoctor", "gpu_calls_seconds_total"] > 0


def test_what_is_wrong_with_a_gpu(stand_in: Path) -> None:
    samples = samples_of(stand_in, STAND_IN_SICK="1")
    seen = values_of(samples)
    assert seen["gpu:0", "nvlinks_active"] == 2
    # Of links 0 and 2: replays and recoveries 0 and 10, CRC errors 20 and 30, and the link's number each.
    assert seen["gpu:0", "nvlink_replays_total"] == 10 + 0 + 10 + 2 * 2
    assert seen["gpu:0", "nvlink_crc_errors_total"] == 2 * (20 + 30) + 2 * 2
    assert seen["gpu:0", "remapped_rows_total"] == 3
    assert (seen["gpu:0", "row_remapping_pending"], seen["gpu:0", "row_remapping_failed"]) == (1, 0)
    assert seen["gpu:0", "xid"] == 74
    assert seen["gpu:0", "xid_errors_total"] == 1
    assert not any("NvLink" in sample[2] for sample in samples if sample[0] == "Unavailable")


def test_how_old_the_use_of_a_gpu_is(stand_in: Path) -> None:
    samples = samples_of(stand_in, STAND_IN_SAMPLED="300")
    lag = values_of(samples)["gpu:0", "utilization_lag_seconds"]
    assert 0.3 <= lag < 1  # the stand-in's clock is ours, so what is more has passed since
    assert values_of(samples)["gpu:0", "utilization_window_seconds"] == 0.2
    assert values_of(samples, "Fact")["gpu:0", "utilization_clock"] in ("monotonic", "boottime")


def test_instances_of_a_partitioned_gpu(stand_in: Path) -> None:
    samples = samples_of(stand_in, STAND_IN_MIG="1", STAND_IN_GPM="1")
    seen, facts = values_of(samples), values_of(samples, "Fact")
    assert facts["gpu:0", "partitioned"] == "yes"
    assert facts["gpu:0:0", "gpm"] == "yes"
    assert seen["gpu:0:0", "busy_fraction"] == pytest.approx(0.01)
    assert seen["gpu:0:0", "memory_total_bytes"] == 40 * GIB
    assert seen["gpu:0:0", "sm_active_fraction"] == pytest.approx(0.02)
    assert seen["gpu:0:0", "job_processes"] == 1
    assert seen["gpu:0", "power_watts"] == 350.5
    # Neither the whole GPU's memory and processes, nor what NVML does not tell of one that is partitioned.
    assert {name for subject, name in seen if subject == "gpu:0"}.isdisjoint(
        {"busy_fraction", "memory_used_bytes", "job_processes", "sm_active_fraction"}
    )
    assert not any("partitioned" in sample[2] for sample in samples if sample[0] == "Unavailable")


def test_instances_without_performance_counters_say_what_is_missing(stand_in: Path) -> None:
    samples = samples_of(stand_in, STAND_IN_MIG="1")
    reasons = [sample[2] for sample in samples if sample[0] == "Unavailable"]
    assert any("does not say how busy its instances are" in reason for reason in reasons)


def test_a_slow_call_holds_up_nobody(stand_in: Path) -> None:
    """What comes after it in its round is there when it has ended, at the latest at close."""
    samples = rounds_of(stand_in, STAND_IN_STALL="1000")
    assert {one[0] for one in samples if one[1] == "Reading" and one[5] == "temperature_celsius"} == {0, 3}
    assert not any(one[1] == "Unavailable" and "not answered" in one[3] for one in samples)


def test_a_driver_that_hangs_is_told_and_does_not_keep_perfdoctor(stand_in: Path) -> None:
    samples = rounds_of(stand_in, STAND_IN_STALL="100000000")
    assert {one[0] for one in samples if one[1] == "Reading" and one[5] == "temperature_celsius"} == {0}
    assert [one[0] for one in samples if one[1] == "Unavailable" and "has not answered" in one[3]] == [3]


def test_what_is_missing_is_said_once_and_never_a_number(stand_in: Path) -> None:
    samples = samples_of(stand_in)
    reasons = [sample[2] for sample in samples if sample[0] == "Unavailable"]
    missing = [reason.split(" answer ")[1].split(" here")[0] for reason in reasons]
    assert len(missing) == len(set(missing))
    assert {"nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetMigMode", "nvmlDeviceGetMaxPcieLinkWidth"} <= set(missing)
    # An older name did answer: nothing is missing.
    assert "nvmlDeviceGetCurrentClocksEventReasons" not in missing
    assert ("gpu:0", "pcie_replays_total") not in values_of(samples)


def test_performance_monitoring_between_two_looks(stand_in: Path) -> None:
    samples = samples_of(stand_in, STAND_IN_GPM="1")
    seen = values_of(samples)
    mib = 1 << 20
    assert seen["gpu:0", "sm_active_fraction"] == pytest.approx(0.02)
    assert seen["gpu:0", "sm_occupancy_fraction"] == pytest.approx(0.03)
    assert seen["gpu:0", "tensor_active_fraction"] == pytest.approx(0.05)
    assert seen["gpu:0", "dram_bandwidth_fraction"] == pytest.approx(0.10)
    assert seen["gpu:0", "pcie_sent_bytes_per_second"] == 20 * mib
    assert seen["gpu:0", "pcie_received_bytes_per_second"] == 21 * mib
    assert seen["gpu:0", "nvlink_received_bytes_per_second"] == 60 * mib
    assert ("gpu:0", "fp64_active_fraction") not in seen  # the metric itself said that it is not supported
    assert values_of(samples, "Fact")["gpu:0", "gpm"] == "yes"
    # The first look has nothing to compare with, the other two have.
    assert len([s for s in samples if s[0] == "Reading" and s[4] == "sm_active_fraction"]) == 2


def test_bytes_of_a_pair_without_ratios_are_left_out(stand_in: Path) -> None:
    samples = samples_of(stand_in, STAND_IN_GPM="early")
    assert values_of(samples)["gpu:0", "nvlink_received_bytes_per_second"] == 60 << 20
    assert len([s for s in samples if s[0] == "Reading" and s[4] == "nvlink_received_bytes_per_second"]) == 1


def test_what_nvlink_carries_is_counted_where_there_is_no_performance_monitoring(stand_in: Path) -> None:
    seen = values_of(samples_of(stand_in, STAND_IN_LINKS="1"))
    assert seen["gpu:0", "nvlink_sent_bytes_per_second"] == pytest.approx(1024e3, rel=0.1)
    assert seen["gpu:0", "nvlink_received_bytes_per_second"] == pytest.approx(3 * 1024e3, rel=0.1)
    with_gpm = values_of(samples_of(stand_in, STAND_IN_LINKS="1", STAND_IN_GPM="1"))
    assert with_gpm["gpu:0", "nvlink_sent_bytes_per_second"] == 61 << 20


def test_performance_monitoring_that_is_not_permitted_is_not_there(stand_in: Path) -> None:
    samples = samples_of(stand_in, STAND_IN_LINKS="1", STAND_IN_GPM="forbidden")
    assert values_of(samples, "Fact")["gpu:0", "gpm"] == "no"
    assert values_of(samples)["gpu:0", "nvlink_sent_bytes_per_second"] == pytest.approx(1024e3, rel=0.1)
    assert values_of(samples)["gpu:0", "pcie_sent_bytes_per_second"] == 1e6
    reasons = [sample[2] for sample in samples if sample[0] == "Unavailable"]
    assert any("nvmlGpmSampleGet" in reason for reason in reasons)


def test_a_job_on_no_gpu_has_no_process_there(stand_in: Path) -> None:
    seen = values_of(samples_of(stand_in, watched="999"))
    assert seen["gpu:0", "job_processes"] == 0
    assert seen["gpu:0", "foreign_processes"] == 2
