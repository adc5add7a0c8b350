"""The I/O probe against processes that move known amounts, another user's rights, and recorded trees."""

import os
from pathlib import Path

import psutil
import pytest

from perfdoctor.probes.io import IoProbe
from perfdoctor.probes.readers.storage import (
    block_device_of,
    device_facts,
    parse_mountinfo,
    read_mounts,
)
from tests.processes.watching import as_nobody, complaints, facts, looked, number, opened, plant, program, readings

pytestmark = pytest.mark.alone

MIB = 1 << 20


def test_counts_what_a_process_writes_and_reads(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    code = f"done()\nwith open({path!r}, 'wb', buffering=0) as file:\n"
    code += "    for _ in range(32):\n        file.write(bytes(1 << 20))\n    os.fsync(file.fileno())\ndone()\n"
    code += f"with open({path!r}, 'rb', buffering=0) as file:\n    while file.read(1 << 20):\n        pass\n"
    with program(code) as job:
        job.step()
        probe = IoProbe()
        before = opened(probe, job.pid)
        job.step()
        written = looked(probe)
        job.step()
        read = looked(probe)
        list(probe.close())
    for subject in (f"pid:{job.pid}", "job"):
        wrote, calls = (
            number(written, subject, name) - number(before, subject, name)
            for name in ("write_call_bytes_total", "write_calls_total")
        )
        assert wrote == pytest.approx(32 * MIB, abs=4096)
        assert 32 <= calls < 40
        got, stored = (
            number(read, subject, name) - number(written, subject, name)
            for name in ("read_call_bytes_total", "storage_read_bytes_total")
        )
        assert got == pytest.approx(32 * MIB, abs=65536)
        assert stored < MIB  # It was still in the page cache.


def test_sees_writes_reach_the_device(tmp_path: Path) -> None:
    above = [mount for mount in read_mounts() if tmp_path.is_relative_to(mount.point)]
    device = block_device_of(max(above, key=lambda mount: len(mount.point)))
    if device is None:
        pytest.skip("temporary files are not on a block device")
    with program(
        f"done()\nwith open({str(tmp_path / 'data')!r}, 'wb') as file:\n"
        "    file.write(os.urandom(16 << 20))\n"
        "    file.flush()\n    os.fsync(file.fileno())\n"
    ) as job:
        job.step()
        probe = IoProbe()
        before = opened(probe, job.pid)
        job.step()
        after = looked(probe)
        list(probe.close())

    def grown(subject: str, name: str) -> float:
        return number(after, subject, name) - number(before, subject, name)

    assert grown(f"device:{device}", "written_bytes_total") >= 15 * MIB
    assert grown(f"device:{device}", "writes_total") > 0
    assert grown(f"device:{device}", "write_seconds_total") > 0
    assert grown(f"pid:{job.pid}", "storage_write_bytes_total") >= 15 * MIB


def test_devices_agree_with_psutil() -> None:
    samples = opened(IoProbe(), os.getpid())
    expected = psutil.disk_io_counters(perdisk=True)
    devices = {subject.removeprefix("device:") for subject, _ in readings(samples) if subject.startswith("device:")}
    assert devices == {name for name in devices if name in expected}
    for device in devices:
        count = number(samples, f"device:{device}", "read_bytes_total")
        assert count == pytest.approx(expected[device].read_bytes, rel=0.05)


def test_counts_ended_children_once() -> None:
    code = "child = os.fork()\nif child == 0:\n    with open('/dev/zero', 'rb', buffering=0) as file:\n"
    code += "        file.read(8 << 20)\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
    code += "sys.stdin.readline()\n"
    with program(f"done()\n{code}os.kill(child, 9)\nos.wait()\n") as job:
        job.step()
        probe = IoProbe()
        opened(probe, job.pid)
        child = int(job.step())
        probe._job.members = (job.pid, child)  # type: ignore[union-attr]
        alive = number(looked(probe), "job", "read_call_bytes_total")
        job.step()
        probe._job.members = (job.pid,)  # type: ignore[union-attr]
        gone = number(looked(probe), "job", "read_call_bytes_total")
        list(probe.close())
    assert alive == pytest.approx(8 * MIB, abs=MIB)
    assert gone == pytest.approx(alive, abs=MIB)


def test_survives_a_process_that_vanishes() -> None:
    with program("done()") as job:
        job.step()
        probe = IoProbe()
        opened(probe, job.pid)
    after = readings(looked(probe))
    list(probe.close())
    assert (f"pid:{job.pid}", "read_calls_total") not in after


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_counters_of_another_user_are_unknown_not_zero() -> None:
    code = """
from perfdoctor.probes.io import IoProbe
give_up()
class Job:
    pids = torch_pids = lambda self: (int(sys.argv[1]),)
probe = IoProbe()
for sample in [*probe.open(Job()), *probe.sample(1)]:
    print(type(sample).__name__, *sample[1:], sep="|")
"""
    with program("done()") as job:
        job.step()
        lines = as_nobody(code, str(job.pid)).splitlines()
    refusals = [line for line in lines if line.startswith("Unavailable|")]
    assert len(refusals) == 1
    assert f"process {job.pid}" in refusals[0]
    assert "sudo" in refusals[0]
    totals = [line for line in lines if line.startswith("Reading|io|job|")]
    assert totals
    assert all(line.endswith("|None") for line in totals)
    assert not [line for line in lines if line.startswith(f"Reading|io|pid:{job.pid}|")]


MOUNTINFO = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
26 22 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=24684084k
40 22 0:45 / /data rw,relatime shared:20 - nfs4 fileserver:/export/data rw,vers=4.2,proto=tcp
41 40 259:3 /scratch /data/local\\040disk rw,relatime - xfs /dev/nvme0n1p3 rw
42 22 0:50 / /bucket rw - fuse.s3fs s3fs rw,user_id=0
43 22 0:51 / /share rw - cifs //user:geheim@server/share rw
44 22 0:52 / /odd rw - fuse.mystery thing rw
45 22 0:53 / /over rw - overlay overlay rw,lowerdir=/a:/b
46 22 0:54 / /mnt/s3 rw - fuse mountpoint-s3 rw
"""


def test_finds_mounts_and_their_file_systems() -> None:
    mounts = {mount.point: mount.filesystem for mount in parse_mountinfo(MOUNTINFO)}
    assert mounts["/data"] == "nfs4"
    assert mounts["/data/local disk"] == "xfs"
    assert mounts["/dev/shm"] == "tmpfs"


@pytest.mark.parametrize(
    ("point", "network"),
    [
        ("/", "no"),
        ("/data", "yes"),
        ("/bucket", "yes"),
        ("/share", "yes"),
        ("/odd", "unknown"),
        ("/mnt/s3", "yes"),
    ],
)
def test_tells_network_file_systems(point: str, network: str) -> None:
    assert {mount.point: mount.network for mount in parse_mountinfo(MOUNTINFO)}[point] == network


TREE = {
    "proc/uptime": "1000.00 1500.00\n",
    "proc/77/mountinfo": MOUNTINFO,
    "proc/77/io": ("rchar: 100\nwchar: 200\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\n"),
    "proc/diskstats": (
        "   7       0 loop0 9 0 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        " 259       0 nvme0n1 1000 5 2048 3000 500 0 4096 7000 0 2500 10000 0 0 0 0 0 0\n"
        " 259       3 nvme0n1p3 1000 5 2048 3000 500 0 4096 7000 0 2500 10000\n"
        " 254       0 vda 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    ),
    "sys/block/loop0/size": "0",
    "sys/block/nvme0n1/size": "0",
    "sys/block/vda/size": "0",
    "proc/pressure/io": "some avg10=0.00 total=4000000\nfull avg10=0.00 total=3000000\n",
    "proc/77/mountstats": (
        "device proc mounted on /proc with fstype proc\n"
        "device fileserver:/export/data mounted on /data with fstype nfs4 statvers=1.1\n"
        "\topts:\trw,vers=4.2\n"
        "\tevents:\t1 2 3 4\n"
        "\tbytes:\t1000 2000 0 0 5242880 1048576 1280 256\n"
        "\tper-op statistics\n"
        "\t        NULL: 1 1 0 44 24 0 0 0 0\n"
        "\t        READ: 40 40 0 8000 5250000 12 3000 3100 0\n"
        "\t       WRITE: 8 8 0 1050000 1000 1 90 95 0\n"
        "device server2:/x mounted on /other with fstype nfs statvers=1.1\n"
        "\tbytes:\t0 0 0 0 7 8 0 0\n"
    ),
}


def planted(tmp_path: Path) -> Path:
    root = plant(tmp_path, TREE)
    for number_, name in (("259:3", "nvme0n1/nvme0n1p3"), ("254:1", "vda/vda1")):
        target = root / "sys/devices/pci0/block" / name
        target.mkdir(parents=True)
        link = root / "sys/dev/block" / number_
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    return root


def test_writes_down_the_mounts_of_the_job(tmp_path: Path) -> None:
    samples = opened(IoProbe(planted(tmp_path)), 77)
    known = facts(samples)
    assert known["mount:/data", "filesystem"] == "nfs4"
    assert known["mount:/data", "network"] == "yes"
    assert known["mount:/data/local disk", "device"] == "nvme0n1"
    assert known["mount:/", "device"] == "vda"
    assert ("mount:/data", "device") not in known
    assert ("mount:/proc", "filesystem") not in known
    assert "geheim" not in known["mount:/share", "source"]
    assert known["mount:/bucket", "network"] == "yes"


def test_reads_whole_devices_only(tmp_path: Path) -> None:
    samples = opened(IoProbe(planted(tmp_path)), 77)
    assert number(samples, "device:nvme0n1", "read_bytes_total") == MIB
    assert number(samples, "device:nvme0n1", "written_bytes_total") == 2 * MIB
    assert number(samples, "device:nvme0n1", "reads_total") == 1000
    assert number(samples, "device:nvme0n1", "read_seconds_total") == 3
    assert number(samples, "device:nvme0n1", "busy_seconds_total") == 2.5
    assert number(samples, "device:nvme0n1", "queue_seconds_total") == 10
    subjects = {subject for subject, _ in readings(samples)}
    assert not subjects & {"device:nvme0n1p3", "device:loop0", "device:vda"}


def test_reads_what_file_servers_delivered(tmp_path: Path) -> None:
    samples = opened(IoProbe(planted(tmp_path)), 77)
    assert number(samples, "mount:/data", "server_read_bytes_total") == 5 * MIB
    assert number(samples, "mount:/data", "server_write_bytes_total") == MIB
    assert number(samples, "mount:/data", "server_read_seconds_total") == 3.1
    assert number(samples, "mount:/other", "server_read_bytes_total") == 7


def test_a_complete_tree_is_no_cause_for_complaint(tmp_path: Path) -> None:
    samples = opened(IoProbe(planted(tmp_path)), 77)
    assert complaints(samples) == []
    assert number(samples, "pid:77", "storage_write_bytes_total") == 8192


def test_disks_tell_their_model_and_kind_as_far_as_the_kernel_knows(tmp_path: Path) -> None:
    for name, model, rotational in (("nvme0n1", "A disk  \n", "0\n"), ("vda", None, "1\n")):
        folder = tmp_path / "sys/class/block" / name
        (folder / "device").mkdir(parents=True)
        (folder / "queue").mkdir()
        (folder / "queue/rotational").write_text(rotational)
        if model is not None:
            (folder / "device/model").write_text(model)
    told = [
        (fact.subject, fact.name, fact.value)
        for name in ("nvme0n1", "vda", "gone")
        for fact in device_facts(1, name, tmp_path)
    ]
    assert told == [
        ("device:nvme0n1", "model", "A disk"), ("device:nvme0n1", "rotates", "no"), ("device:vda", "rotates", "yes"),
    ]  # fmt: skip
