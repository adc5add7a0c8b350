"""What control groups allow to read and write: files of both versions, as kernels write them."""

from pathlib import Path

import pytest

from perfdoctor.probes.readers.procfs import KeptFiles
from perfdoctor.probes.readers.storage_limits import PERIOD_NS, StorageLimits

V1 = {
    "proc/7/cgroup": "5:blkio:/jobs/a\n",
    "proc/self/mountinfo": "20 1 0:20 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n",
    "sys/fs/cgroup/blkio/jobs/blkio.throttle.read_bps_device": "254:0 1000\n",
    "sys/fs/cgroup/blkio/jobs/a/blkio.throttle.read_bps_device": "254:0 24000000\n",
    "sys/fs/cgroup/blkio/jobs/a/blkio.throttle.read_iops_device": "",
    "sys/fs/cgroup/blkio/jobs/a/blkio.throttle.io_service_bytes": "254:0 Read 480\n254:0 Write 0\nTotal 480\n",
    "sys/fs/cgroup/blkio/jobs/a/blkio.throttle.io_serviced": "254:0 Read 3\n254:0 Write 1\nTotal 4\n",
}  # fmt: skip
V2 = {
    "proc/7/cgroup": "0::/jobs/a\n",
    "proc/self/mountinfo": "20 1 0:20 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
    "sys/fs/cgroup/jobs/io.max": "254:0 rbps=max wbps=max riops=400 wiops=max\n",
    "sys/fs/cgroup/jobs/io.stat": "254:0 rbytes=480 wbytes=0 rios=3 wios=1 dbytes=0 dios=0\n",
    "sys/fs/cgroup/jobs/a/io.max": "",
    "sys/fs/cgroup/jobs/a/io.stat": "254:0 rbytes=480 wbytes=0 rios=3 wios=1 dbytes=0 dios=0\n",
}


def lay_out(root: Path, files: dict[str, str]) -> StorageLimits:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    disk = root / "sys/devices/vda"
    disk.mkdir(parents=True)
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block/254:0").symlink_to(disk)
    return StorageLimits(root, KeptFiles(root))


def seen(limits: StorageLimits, time_ns: int = 0) -> dict[tuple[str, str], float | None]:
    return {(row.subject, row.name): row.value for row in limits.sample(time_ns, [7])}


@pytest.mark.parametrize(
    ("files", "subject", "name", "limit"),
    [
        # A limit of the group above holds for the job in version 2 only.
        (V1, "throttle:vda:/jobs/a", "read_limit_bytes_per_second", 24e6),
        (V2, "throttle:vda:/jobs", "read_limit_per_second", 400.0),
    ],
)
def test_limits_are_read_with_what_went_through(
    tmp_path: Path, files: dict[str, str], subject: str, name: str, limit: float
) -> None:
    passed = {"read_bytes_total": 480.0, "written_bytes_total": 0.0, "reads_total": 3.0, "writes_total": 1.0}
    assert seen(lay_out(tmp_path, files)) == {(subject, one): value for one, value in {name: limit, **passed}.items()}


def test_limits_that_change_are_seen(tmp_path: Path) -> None:
    limits = lay_out(tmp_path, V2)
    assert seen(limits)
    (tmp_path / "sys/fs/cgroup/jobs/io.max").write_text("")
    assert seen(limits, PERIOD_NS - 1)
    assert not seen(limits, PERIOD_NS)


def test_jobs_without_limits_cost_no_readings(tmp_path: Path) -> None:
    assert not seen(lay_out(tmp_path, {"proc/7/cgroup": "0::/\n", "proc/self/mountinfo": ""}))
