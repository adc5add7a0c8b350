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

from perfdoctor.probes import gpu
from perfdoctor.probes.gpu import GpuProbe, clock_limits
from perfdoctor.probes.readers import nvml
from perfdoctor.probes.readers.nvml import (
    GPM_METRICS,
    Nvml,
    mean_use,
    sees_all_processes,
    tell_apart,
    total,
    why_no_gpu,
)
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

    text = "".join(Path(module.__file__ or "").read_text() for module in (gpu, nvml))
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

    assert limits("SwPowerCap") == limits("HwPowerBrakeSlowdown") == {"power"}
    assert limits("SwThermalSlowdown") == limits("HwThermalSlowdown") == {"heat"}
    assert limits("HwSlowdown") == {"hardware"}
    assert limits("GpuIdle", "ApplicationsClocksSetting", "DisplayClockSetting") == set()
    assert limits("SwPowerCap", "HwThermalSlowdown") == {"power", "heat"}


def on_gpu(pid: int, used: int | None = GIB) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


def test_tells_the_job_from_others() -> None:
    users = tell_apart([on_gpu(1), on_gpu(2, 2 * GIB), on_gpu(3)], [1, 3, 9], all_visible=True)
    assert users.job == {1: GIB, 3: GIB}
    assert users.foreign == {2: 2 * GIB}


@pytest.mark.parametrize(
    ("listed", "job"),
    [([], None), ([on_gpu(4711)], None), ([on_gpu(1), on_gpu(4711)], None), ([on_gpu(1)], {1: GIB})],
)
def test_inside_a_container_others_are_unknown(listed: list[Any], job: dict[int, int] | None) -> None:
    users = tell_apart(listed, [1, 2], all_visible=False)
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
    assert "install the NVIDIA driver" in why_no_gpu(tmp_path, "x")[1]
    assert "AMD" in why_no_gpu(plant(tmp_path / "amd", {"dev/kfd": ""}), "x")[0]
    assert "reboot" in why_no_gpu(plant(tmp_path / "old", {"proc/driver/nvidia/version": "x"}), "x")[1]


LOOK = """
import json, os, sys
from pathlib import Path
from perfdoctor.probes.gpu import GpuProbe
class Job:
    pids = torch_pids = lambda self: (int(os.environ["STAND_IN_JOB"]),)
probe = GpuProbe(Path(sys.argv[1]))
samples = [*probe.open(Job()), *probe.sample(1), *probe.sample(10**15), *probe.close()]
print(json.dumps([[type(sample).__name__, *sample] for sample in samples]))
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


def samples_of(stand_in: Path, **environment: str) -> list[list[Any]]:
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(stand_in),
        "STAND_IN_JOB": "10",
        "STAND_IN_OTHER": "20",
        **environment,
    }
    command = [sys.executable, "-c", LOOK, str(stand_in)]
    return json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


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
        "energy_joules_total": 7,
        "sm_clock_hertz": 1.41e9,
        "sm_clock_max_hertz": 1.98e9,
        "memory_clock_hertz": 2.619e9,
        "temperature_celsius": 61,
        "clocks_limited_by_power": 1,
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
        "foreign_sm_fraction": 0.0,  # at the second slow look, with nothing new; 0.25 at the first
    }
    assert ["Reading", "gpu:0", "foreign_sm_fraction", 0.25] in [[s[0], *s[3:]] for s in samples]
    assert values_of(samples)["gpu:0/pid:10", "memory_bytes"] == 12 * GIB
    assert ["Reading", "gpu:0/pid:10", "sm_fraction", 0.7] in [[s[0], *s[3:]] for s in samples]
    assert values_of(samples, "Fact") == {
        ("gpu:0", "name"): "Stand-in 100",
        ("gpu:0", "driver_version"): "555.42",
        ("gpu:0", "cuda_driver_version"): "12.4",
        ("gpu:0", "compute_capability"): "9.0",
        ("gpu:0", "gpm"): "no",
    }


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


def test_a_job_on_no_gpu_has_no_process_there(stand_in: Path) -> None:
    env = {**os.environ, "LD_LIBRARY_PATH": str(stand_in), "STAND_IN_JOB": "10", "STAND_IN_OTHER": "20"}
    code = LOOK.replace('int(os.environ["STAND_IN_JOB"])', "999")
    command = [sys.executable, "-c", code, str(stand_in)]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    seen = values_of(json.loads(out))
    assert seen["gpu:0", "job_processes"] == 0
    assert seen["gpu:0", "foreign_processes"] == 2
