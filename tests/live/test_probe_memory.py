"""The memory probe against processes that take known amounts, a real limit, and recorded trees."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from perfdoctor.probes.memory import SLOW_PERIOD_NS, MemoryProbe
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import Fact
from tests.processes.watching import looked, number, opened, plant, program, readings, remove_group

pytestmark = pytest.mark.alone

MIB = 1 << 20
GROUPS = Path("/sys/fs/cgroup/memory")


def test_sees_memory_that_a_process_takes() -> None:
    with program("done()\nkept = b'x' * (64 << 20)\ndone()") as job:
        job.step()
        probe = MemoryProbe()
        before = opened(probe, job.pid)
        job.step()
        after = looked(probe)
        rss = psutil.Process(job.pid).memory_info().rss
        list(probe.close())
    subject = f"pid:{job.pid}"
    assert number(after, subject, "rss_bytes") == pytest.approx(rss, abs=MIB)
    grown = number(after, subject, "rss_bytes") - number(before, subject, "rss_bytes")
    assert grown == pytest.approx(64 * MIB, abs=4 * MIB)
    faults = number(after, subject, "minor_faults_total") - number(before, subject, "minor_faults_total")
    assert faults > 20


def test_sees_shared_memory_of_all_its_users() -> None:
    code = "import mmap\nkept = mmap.mmap(-1, 32 << 20)\nkept.write(b'x' * (32 << 20))\nchild = os.fork()\n"
    code += "if child == 0:\n    kept[:]\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
    code += "sys.stdin.readline()\n"
    with program(code) as job:
        child = int(job.step())
        samples = opened(MemoryProbe(), job.pid, child)
        os.kill(child, 9)
    for pid in (job.pid, child):
        assert number(samples, f"pid:{pid}", "shared_memory_bytes") == pytest.approx(32 * MIB, abs=MIB)


def test_host_agrees_with_psutil() -> None:
    samples = opened(MemoryProbe(), os.getpid())
    expected = psutil.virtual_memory()
    assert number(samples, "host", "memory_total_bytes") == expected.total
    assert number(samples, "host", "memory_available_bytes") == pytest.approx(expected.available, rel=0.1)
    assert number(samples, "host", "swap_total_bytes") == psutil.swap_memory().total


def test_measures_what_a_page_fault_costs_here() -> None:
    (cost,) = (float(one.value) for one in opened(MemoryProbe(), os.getpid()) if isinstance(one, Fact))
    assert 1e-8 < cost < 1e-4


def test_survives_a_process_that_vanishes() -> None:
    with program("done()") as job:
        job.step()
        probe = MemoryProbe()
        assert (f"pid:{job.pid}", "rss_bytes") in readings(opened(probe, job.pid))
    after = readings(looked(probe))
    list(probe.close())
    assert (f"pid:{job.pid}", "rss_bytes") not in after
    assert ("host", "memory_total_bytes") in after


@pytest.fixture
def limited_group() -> Iterator[Path]:
    group = GROUPS / f"perfdoctor-test-{os.getpid()}"
    if not (GROUPS / "memory.limit_in_bytes").exists() or not os.access(GROUPS, os.W_OK):
        pytest.skip("no control groups of version 1 that we may create")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be created: {error}")
    (group / "memory.limit_in_bytes").write_text(str(48 * MIB))
    yield group
    remove_group(group)


def test_sees_a_job_run_into_a_real_limit(limited_group: Path, tmp_path: Path) -> None:
    # Page cache is charged to the group too, and given back when the limit is hit: nobody is killed.
    path = tmp_path / "data"
    code = f"done()\nwith open({str(path)!r}, 'wb') as file:\n"
    code += "    for _ in range(96):\n        file.write(b'x' * (1 << 20))\n        file.flush()\n"
    code += "        os.fsync(file.fileno())\n"
    code += f"for _ in range(3):\n    with open({str(path)!r}, 'rb') as file:\n"
    code += "        while file.read(1 << 20): pass\n"
    with program(code) as job:
        (limited_group / "cgroup.procs").write_text(str(job.pid))
        job.step()
        probe = MemoryProbe()
        before = opened(probe, job.pid)
        job.step()
        after = list(probe.sample(now_ns() + SLOW_PERIOD_NS))
        list(probe.close())
    subject = f"cgroup:/{limited_group.name}"
    assert number(before, subject, "limit_bytes") == 48 * MIB
    assert number(after, subject, "usage_bytes") > 16 * MIB
    assert number(after, subject, "limit_hits_total") > number(before, subject, "limit_hits_total")
    assert number(after, subject, "oom_kills_total") == 0
    # Twice as much as fits was read three times: what is read again had been dropped.
    read_again = number(after, subject, "refaults_total") - number(before, subject, "refaults_total")
    assert read_again * os.sysconf("SC_PAGE_SIZE") > 48 * MIB


V2 = {
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    "proc/77/cgroup": "0::/job\n",
    "proc/77/status": (
        "Name:\ta\nVmRSS:\t   4096 kB\nRssAnon:\t   2048 kB\nRssShmem:\t   1024 kB\nVmSwap:\t    512 kB\n"
    ),
    "proc/77/stat": "77 (a) S 1 77 77 0 -1 4194304 100 0 3 0 150 50 25 25 20 0 9 0 90000 1000 10 184 0\n",
    "proc/meminfo": (
        "MemTotal:     8192 kB\nMemAvailable:  4096 kB\nSwapCached:  7 kB\nCached:  2048 kB\nDirty:   16 kB\n"
    ),
    "proc/vmstat": (
        "pgmajfault 12\npswpin 3\npswpout 5\nworkingset_refault_file 70\n"
        "pgscan_direct 6\ncompact_stall 8\nthp_fault_alloc 20\nthp_fault_fallback 10\n"
    ),
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 total=1000000\nfull avg10=0.00 total=500000\n",
    "sys/fs/cgroup/cgroup.procs": "",
    "sys/fs/cgroup/job/memory.max": "8388608\n",
    "sys/fs/cgroup/job/memory.high": "6291456\n",
    "sys/fs/cgroup/job/memory.current": "5242880\n",
    "sys/fs/cgroup/job/memory.stat": (
        "anon 1048576\nfile 2097152\nshmem 524288\npgsteal 40\nworkingset_refault_file 30\n"
    ),
    "sys/fs/cgroup/job/memory.events": "low 0\nhigh 4\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n",
    "sys/fs/cgroup/job/memory.pressure": "some avg10=0.00 total=3000000\nfull avg10=0.00 total=2000000\n",
}


def test_reads_version_2(tmp_path: Path) -> None:
    samples = opened(MemoryProbe(plant(tmp_path, V2)), 77)
    assert number(samples, "cgroup:/job", "limit_bytes") == 6 * MIB
    assert number(samples, "cgroup:/job", "usage_bytes") == 5 * MIB
    assert number(samples, "cgroup:/job", "page_cache_bytes") == 2 * MIB
    assert number(samples, "cgroup:/job", "memory_available_bytes") == 2.5 * MIB
    assert number(samples, "cgroup:/job", "limit_hits_total") == 6
    assert number(samples, "cgroup:/job", "oom_kills_total") == 1
    assert number(samples, "cgroup:/job", "reclaimed_bytes_total") == 40 * os.sysconf("SC_PAGE_SIZE")
    assert number(samples, "cgroup:/job", "refaults_total") == 30
    assert number(samples, "cgroup:/job", "memory_pressure_full_seconds_total") == 2


def test_no_limit_is_no_reading(tmp_path: Path) -> None:
    tree = {**V2, "sys/fs/cgroup/job/memory.max": "max\n", "sys/fs/cgroup/job/memory.high": "max\n"}
    found = readings(opened(MemoryProbe(plant(tmp_path, tree)), 77))
    assert ("cgroup:/job", "limit_bytes") not in found
    assert ("cgroup:/job", "memory_available_bytes") not in found


def test_reads_swapping_and_faults(tmp_path: Path) -> None:
    samples = opened(MemoryProbe(plant(tmp_path, V2)), 77)
    page = os.sysconf("SC_PAGE_SIZE")
    assert number(samples, "host", "swapped_in_bytes_total") == 3 * page
    assert number(samples, "host", "swapped_out_bytes_total") == 5 * page
    assert number(samples, "host", "refaults_total") == 70
    assert number(samples, "host", "direct_reclaim_bytes_total") == 6 * page
    assert number(samples, "host", "compaction_stalls_total") == 8
    assert number(samples, "host", "huge_page_faults_total") == 20
    assert number(samples, "host", "huge_page_fallbacks_total") == 10
    assert number(samples, "host", "page_cache_bytes") == 2 * MIB
    assert number(samples, "pid:77", "anonymous_bytes") == 2 * MIB
    assert number(samples, "pid:77", "swap_bytes") == 512 * 1024
    assert number(samples, "pid:77", "major_faults_total") == 3
    assert number(samples, "pid:77", "minor_faults_total") == 100
