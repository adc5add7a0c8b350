"""The CPU probe against processes that burn a known amount, real control groups, and a recorded tree."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from perfdoctor.probes.cpu import CpuProbe
from perfdoctor.probes.readers.neighbours import Neighbours
from perfdoctor.probes.readers.numa import node_of_device
from perfdoctor.probes.readers.procfs import KeptFiles, Tally, stat_fields
from perfdoctor.recording.schema import Fact, Reading, core_list, core_text
from tests.processes.watching import complaints, facts, looked, number, opened, plant, program, readings, remove_group

pytestmark = pytest.mark.alone

BURN = """
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""
GROUPS = Path("/sys/fs/cgroup/cpu")


def test_counts_the_seconds_that_a_process_burns() -> None:
    with program(f"{BURN}\ndone()\nburn(0.6)") as job:
        job.step()
        probe = CpuProbe()
        before = opened(probe, job.pid)
        job.step()
        after = looked(probe)
        times = psutil.Process(job.pid).cpu_times()
        list(probe.close())
    burnt = number(after, "job", "cpu_seconds_total") - number(before, "job", "cpu_seconds_total")
    assert burnt == pytest.approx(0.6, abs=0.1)
    user, system = (number(after, f"pid:{job.pid}", f"{kind}_seconds_total") for kind in ("user", "system"))
    assert user + system == pytest.approx(times.user + times.system, abs=0.05)


def test_keeps_the_seconds_of_children_that_ended() -> None:
    child = "if os.fork() == 0:\n    burn(0.3)\n    os._exit(0)\nos.wait()\n"
    with program(f"{BURN}\ndone()\n{child}done()\n{child}") as job:
        job.step()
        probe = CpuProbe()
        opened(probe, job.pid)
        job.step()
        once = number(looked(probe), "job", "cpu_seconds_total")
        job.step()
        twice = number(looked(probe), "job", "cpu_seconds_total")
        list(probe.close())
    assert once == pytest.approx(0.3, abs=0.1)
    assert twice == pytest.approx(0.6, abs=0.15)


def test_counts_a_child_that_was_seen_alive_only_once() -> None:
    code = "r, w = os.pipe()\nchild = os.fork()\n"
    code += "if child == 0:\n    burn(0.3)\n    os.write(w, b'.')\n    time.sleep(60)\n"
    code += "os.read(r, 1)\ndone(child)\n"
    with program(f"{BURN}\ndone()\n{code}os.kill(child, 9)\nos.wait()\n") as job:
        job.step()
        probe = CpuProbe()
        opened(probe, job.pid)
        child = int(job.step())
        probe._job.members = (job.pid, child)  # type: ignore[union-attr]
        alive = number(looked(probe), "job", "cpu_seconds_total")
        job.step()
        probe._job.members = (job.pid,)  # type: ignore[union-attr]
        gone = number(looked(probe), "job", "cpu_seconds_total")
        list(probe.close())
    assert alive == pytest.approx(0.3, abs=0.1)
    assert gone == pytest.approx(alive, abs=0.1)


def test_tells_neighbours_from_the_job_and_from_itself() -> None:
    # A child of ours would count as perfdoctor's: the neighbour leaves its parent.
    orphan = f"{BURN}\nif os.fork():\n    os._exit(0)\ndone()\nburn(0.5)"
    with program(f"{BURN}\ndone()\nburn(0.5)") as job, program(orphan) as neighbour:
        job.step()
        neighbour.step()
        probe = CpuProbe()
        opened(probe, job.pid)
        neighbour.step()
        first = looked(probe)
        seen = number(first, "host", "neighbours_seconds_total")
        job.step()
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass
        after = looked(probe)
        busy = number(after, "host", "neighbours_seconds_total")
        own = number(after, "perfdoctor", "cpu_seconds_total")
        list(probe.close())
    assert seen >= 0.4
    assert number(first, "perfdoctor", "cpu_seconds_total") < 0.2
    assert number(first, "job", "cpu_seconds_total") < 0.1
    assert own >= 0.4
    assert number(after, "job", "cpu_seconds_total") == pytest.approx(0.5, abs=0.1)
    assert busy >= seen


def test_names_neighbours_that_use_cores_and_no_others() -> None:
    with program("done()") as job, program(f"{BURN}\ndone()\nburn(0.5)") as busy, program("done()\n") as idle:
        busy.step()
        idle.step()
        own = psutil.Process()
        scans = Neighbours(Path("/"))
        ours = {job.pid, own.pid}
        cores = frozenset(own.cpu_affinity())
        assert list(scans.sample(1_000_000_000, ours, cores)) == []
        busy.step()
        seen = list(scans.sample(2_000_000_000, ours, cores))
    subjects = {one.subject for one in seen}
    assert f"neighbour:{busy.pid}" in subjects
    assert not subjects & {f"neighbour:{pid}" for pid in (job.pid, own.pid, idle.pid)}
    used = [one.value for one in seen if isinstance(one, Reading) and one.subject == f"neighbour:{busy.pid}"]
    assert len(used) == 2
    assert used[1] - used[0] == pytest.approx(0.5, abs=0.1)
    [command] = [one.value for one in seen if isinstance(one, Fact) and one.subject == f"neighbour:{busy.pid}"]
    assert command.startswith("python")


def test_survives_a_process_that_vanishes_and_frees_its_files() -> None:
    with program("done()") as job:
        job.step()
        probe = CpuProbe()
        opened(probe, job.pid)
        assert (f"pid:{job.pid}", "threads") in readings(looked(probe))
    after = readings(looked(probe))
    assert (f"pid:{job.pid}", "threads") not in after
    assert after["job", "cpu_seconds_total"] is not None
    list(probe.close())
    assert not [target for target in open_files() if f"/proc/{job.pid}/" in target]


def open_files() -> list[str]:
    """What this process has open, those gone meanwhile left out."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return [os.readlink(link) for link in links if os.path.lexists(link)]


def test_counts_threads_and_allowed_cores() -> None:
    code = "import threading\nfor _ in range(3):\n"
    code += "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    with program(f"os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n{code}done()\n") as job:
        job.step()
        probe = CpuProbe()
        samples = opened(probe, job.pid)
        list(probe.close())
        cores = psutil.Process(job.pid).cpu_affinity()
    subject = f"pid:{job.pid}"
    assert number(samples, subject, "threads") == 4
    assert number(samples, subject, "allowed_cores") == len(cores) == 1
    assert facts(samples)[subject, "affinity"] == str(cores[0])
    assert number(samples, "job", "usable_cores") == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_pinned_main_thread_does_not_confine_the_process() -> None:
    code = "import threading\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    with program(f"{code}os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\ndone()\n") as job:
        job.step()
        probe = CpuProbe()
        samples = opened(probe, job.pid)
        list(probe.close())
    assert number(samples, f"pid:{job.pid}", "allowed_cores") == len(os.sched_getaffinity(0))
    threads = [subject for subject, name in facts(samples) if name == "affinity" and subject.startswith("tid:")]
    assert threads == [f"tid:{job.pid}"]
    assert facts(samples)[f"tid:{job.pid}", "affinity"] == str(min(os.sched_getaffinity(0)))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_processes_bound_to_cores_of_their_own_have_all_of_these() -> None:
    """As a launcher binds ranks: none of them may use more than one, the job uses both."""
    bound = "os.sched_setaffinity(0, [{}(os.sched_getaffinity(0))])\ndone()\n"
    with program(bound.format("min")) as first, program(bound.format("max")) as second:
        first.step()
        second.step()
        probe = CpuProbe()
        samples = opened(probe, first.pid, second.pid)
        list(probe.close())
    assert number(samples, "job", "usable_cores") == 2


def test_host_totals_agree_with_psutil() -> None:
    probe = CpuProbe()
    samples = opened(probe, os.getpid())
    expected = psutil.cpu_times()
    list(probe.close())
    assert number(samples, "host", "idle_seconds_total") == pytest.approx(expected.idle, abs=1.0)
    cores = [number(samples, f"core:{core}", "busy_seconds_total") for core in range(psutil.cpu_count() or 1)]
    assert sum(cores) == pytest.approx(number(samples, "host", "busy_seconds_total"), abs=0.1 * len(cores))
    assert facts(samples)["host", "logical_cores"] == str(psutil.cpu_count())


@pytest.fixture
def quota_group() -> Iterator[Path]:
    """A control group of version 1 with a fifth of a core, below one with a whole core."""
    parent = GROUPS / f"perfdoctor-test-{os.getpid()}"
    group = parent / "inner"
    if not (GROUPS / "cpu.cfs_quota_us").exists() or not os.access(GROUPS, os.W_OK):
        pytest.skip("no control groups of version 1 that we may create")
    try:
        group.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"control groups cannot be created: {error}")
    (parent / "cpu.cfs_quota_us").write_text("100000")
    (group / "cpu.cfs_quota_us").write_text("20000")
    yield group
    for folder in (group, parent):
        remove_group(folder)


def test_sees_a_real_quota_throttle_a_job(quota_group: Path) -> None:
    with program(f"{BURN}\ndone()\nburn(0.4)") as job:
        (quota_group / "cgroup.procs").write_text(str(job.pid))
        job.step()
        probe = CpuProbe()
        before = opened(probe, job.pid)
        job.step()
        after = looked(probe)
        list(probe.close())
    subject = f"cgroup:/{quota_group.parent.name}/inner"
    assert number(before, subject, "quota_cores") == pytest.approx(0.2)
    assert number(before, f"cgroup:/{quota_group.parent.name}", "quota_cores") == pytest.approx(1.0)
    assert number(before, "job", "usable_cores") == pytest.approx(0.2)
    assert facts(before)["job", "cpu_quota"] == "0.2"
    periods, throttled, stopped = (
        number(after, subject, name) - number(before, subject, name)
        for name in ("quota_periods_total", "throttled_periods_total", "throttled_seconds_total")
    )
    assert throttled > 0.3 * periods > 1
    assert stopped > 0.3


V2 = {
    "proc/uptime": "1000.00 1500.00\n",
    "proc/self/mountinfo": (
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    ),
    "proc/77/cgroup": "0::/kubepods.slice/pod1.slice/main\n",
    "proc/77/stat": "77 (a) b) R 1 77 77 0 -1 4194304 100 0 3 0 150 50 25 25 20 0 9 0 90000 1000 10 184 0\n",
    "proc/77/status": "Name:\ta\nCpus_allowed_list:\t0-15\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Example CPU 9000\n",
    "proc/stat": "cpu  100 10 50 1000 5 2 3 40 0 0\ncpu0 100 10 50 1000 5 2 3 40 0 0\nprocs_running 7\n",
    "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n",
    "sys/devices/system/cpu/online": "0-15\n",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0,8\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2000000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "3000000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3500000\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 9\nuser_usec 8\nsystem_usec 1\n",
    "sys/fs/cgroup/kubepods.slice/cpu.max": "max 100000\n",
    "sys/fs/cgroup/kubepods.slice/cpu.stat": (
        "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n"
    ),
    "sys/fs/cgroup/kubepods.slice/pod1.slice/cpu.max": "250000 100000\n",
    "sys/fs/cgroup/kubepods.slice/pod1.slice/cpu.stat": (
        "usage_usec 9\nnr_periods 40\nnr_throttled 30\nthrottled_usec 1500000\n"
    ),
    "sys/fs/cgroup/kubepods.slice/pod1.slice/main/cpu.max": "max 100000\n",
    "sys/fs/cgroup/kubepods.slice/pod1.slice/main/cpu.stat": "nr_periods 0\nnr_throttled 0\n",
    "sys/fs/cgroup/kubepods.slice/pod1.slice/main/cpu.pressure": (
        "some avg10=1.00 avg60=1.00 avg300=1.00 total=7000000\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=6000000\n"
    ),
}


def test_reads_version_2_with_the_limit_on_an_ancestor(tmp_path: Path) -> None:
    samples = opened(CpuProbe(plant(tmp_path, V2)), 77)
    pod = "cgroup:/kubepods.slice/pod1.slice"
    assert number(samples, pod, "quota_cores") == 2.5
    assert number(samples, pod, "quota_periods_total") == 40
    assert number(samples, pod, "throttled_periods_total") == 30
    assert number(samples, pod, "throttled_seconds_total") == 1.5
    assert (f"{pod}/main", "quota_cores") not in readings(samples)
    assert number(samples, f"{pod}/main", "cpu_pressure_full_seconds_total") == 6
    assert number(samples, "job", "usable_cores") == 2.5
    assert facts(samples)["job", "cpu_quota"] == "2.5"


def test_reads_host_and_process_from_a_recorded_tree(tmp_path: Path) -> None:
    samples = opened(CpuProbe(plant(tmp_path, V2)), 77)
    ticks = os.sysconf("SC_CLK_TCK")
    assert number(samples, "host", "busy_seconds_total") == pytest.approx(165 / ticks)
    assert number(samples, "host", "steal_seconds_total") == pytest.approx(40 / ticks)
    assert number(samples, "host", "runnable_threads") == 7
    assert number(samples, "host", "cpu_pressure_some_seconds_total") == 2.5
    assert number(samples, "host", "core_clock_hertz") == 2.5e9
    assert number(samples, "pid:77", "user_seconds_total") == pytest.approx(150 / ticks)
    assert number(samples, "pid:77", "waited_children_seconds_total") == pytest.approx(50 / ticks)
    assert number(samples, "pid:77", "threads") == 9
    known = facts(samples)
    assert known["host", "cpu_model"] == "Example CPU 9000"
    assert known["host", "core_clock_max_hertz"] == "3500000000"
    assert known["host", "threads_per_core"] == "2"
    assert known["pid:77", "affinity"] == "0-15"


TWO_NODES = {
    **V2,
    # Running on core 9, the last of 37 fields from the state on (proc(5), field 39).
    "proc/77/stat": V2["proc/77/stat"].rstrip("\n") + " 0" * 12 + " 9\n",
    "sys/devices/system/node/node0/cpulist": "0-7\n",
    "sys/devices/system/node/node0/distance": "10 21\n",
    "sys/devices/system/node/node1/cpulist": "8-15\n",
    "sys/devices/system/node/node1/distance": "21 10\n",
    "sys/devices/system/cpu/cpu9/cpufreq/scaling_cur_freq": "1200000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/base_frequency": "2600000\n",
    "sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_total_time_ms": "4500\n",
}


def test_reads_nodes_and_the_clock_of_the_core_that_the_job_runs_on(tmp_path: Path) -> None:
    root = plant(tmp_path, TWO_NODES)
    samples = opened(CpuProbe(root), 77)
    assert number(samples, "pid:77", "numa_node") == 1
    assert facts(samples)["node:1", "cores"] == "8-15"
    assert facts(samples)["node:0", "distances"] == "10 21"
    assert number(samples, "host", "core_clock_hertz") == 1.2e9
    assert facts(samples)["host", "core_clock_nominal_hertz"] == "2600000000"
    assert number(samples, "core:3", "heat_limited_seconds_total") == 4.5


def test_clocks_of_idle_cores_are_not_read(tmp_path: Path) -> None:
    asleep = TWO_NODES["proc/77/stat"].replace(" R ", " S ")
    samples = opened(CpuProbe(plant(tmp_path, {**TWO_NODES, "proc/77/stat": asleep})), 77)
    assert ("host", "core_clock_hertz") not in readings(samples)


def test_the_nominal_clock_of_cores_that_count_in_megahertz(tmp_path: Path) -> None:
    root = plant(tmp_path, {**V2, "sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq": "2450\n"})
    assert facts(opened(CpuProbe(root), 77))["host", "core_clock_nominal_hertz"] == "2450000000"


def test_where_all_is_one_node_nothing_is_said_of_nodes(tmp_path: Path) -> None:
    tree = {name: text for name, text in TWO_NODES.items() if "node1" not in name}
    samples = opened(CpuProbe(plant(tmp_path, tree)), 77)
    assert ("pid:77", "numa_node") not in readings(samples)
    assert not [subject for subject, _ in facts(samples) if subject.startswith("node:")]


def test_the_node_of_a_device(tmp_path: Path) -> None:
    devices = "sys/bus/pci/devices"
    root = plant(tmp_path, {f"{devices}/0000:1a:00.0/numa_node": "1\n", f"{devices}/0000:1b:00.0/numa_node": "-1\n"})
    assert node_of_device("0000:1a:00.0", root) == 1
    assert node_of_device("0000:1b:00.0", root) is None
    assert node_of_device("0000:1c:00.0", root) is None


def test_a_quota_that_cannot_be_read_is_unknown_not_unlimited(tmp_path: Path) -> None:
    root = plant(tmp_path, V2)
    (root / "sys/fs/cgroup/kubepods.slice/pod1.slice/cpu.max").write_text("")
    assert ("job", "cpu_quota") not in facts(opened(CpuProbe(root), 77))


def test_a_kernel_without_pressure_is_said_so(tmp_path: Path) -> None:
    tree = {name: text for name, text in V2.items() if "pressure" not in name}
    samples = opened(CpuProbe(plant(tmp_path, tree)), 77)
    assert [complaint.probe for complaint in complaints(samples)] == ["cpu"]
    assert not [name for _, name in readings(samples) if "pressure" in name]


def test_a_group_path_of_another_namespace_means_what_is_mounted(tmp_path: Path) -> None:
    tree = dict(V2)
    tree["proc/77/cgroup"] = "0::/../../outside\n"
    tree["sys/fs/cgroup/cpu.max"] = "50000 100000\n"
    samples = opened(CpuProbe(plant(tmp_path, tree)), 77)
    assert number(samples, "cgroup:/", "quota_cores") == 0.5


def test_core_lists_both_ways() -> None:
    assert core_list("0-3,8\n") == (0, 1, 2, 3, 8)
    assert core_text([8, 0, 1, 2, 3]) == "0-3,8"
    assert core_text([]) == ""
    assert core_list("\n") == ()


def test_stat_of_a_process_with_a_hostile_name() -> None:
    assert stat_fields(b"5 (a) R 1 (b) S 4 5 6\n")[:2] == [b"S", b"4"]


def test_tally_counts_inherited_amounts_once() -> None:
    tally = Tally()
    assert tally.update({1: 10.0, 2: 5.0}) == 0
    assert tally.update({1: 11.0, 2: 7.0}) == 3
    # 2 ended with 8 in all and was waited for: 1 inherits them.
    assert tally.update({1: 20.0}) == 5
    # 3 is new and ours; 4 was there before we looked.
    assert tally.update({1: 20.0, 3: 2.0, 4: 100.0}, newborn=[3]) == 7
    # 3 ends, and nobody waits for it.
    assert tally.update({1: 20.5, 4: 100.0}) == 7.5


def test_files_beyond_the_limit_are_not_kept_open(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "1", "b": "2"})
    files = KeptFiles(tmp_path, limit=1)
    assert [files.read("/a"), files.read("/b"), files.read("/a")] == [b"1", b"2", b"1"]
    assert len(files._open) == 1
    files.close()


def test_reads_files_longer_than_a_chunk(tmp_path: Path) -> None:
    text = "x" * 200_000
    assert KeptFiles(plant(tmp_path, {"long": text})).read("/long") == text.encode()


def test_costs_little_to_import() -> None:
    code = "import sys, perfdoctor.probes.cpu; sys.exit(bool({'pandas', 'numpy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
