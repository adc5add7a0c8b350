"""What control groups allow a job to read and write per second, and what they let through.

A limit is kept by holding requests back before they reach the device: whoever waits for it sees slow storage, while
the device itself is idle.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from perfdoctor.probes.readers.cgroup import UNIFIED, ControlGroup, Governing
from perfdoctor.probes.readers.procfs import KeptFiles
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Reading

PERIOD_NS = 5 * NS_PER_S  # limits are set by administrators, and seldom

READ_BYTES, WRITTEN_BYTES = "read_limit_bytes_per_second", "written_limit_bytes_per_second"
READS, WRITES = "read_limit_per_second", "write_limit_per_second"
_LIMITS_V1 = {
    "read_bps_device": READ_BYTES,
    "write_bps_device": WRITTEN_BYTES,
    "read_iops_device": READS,
    "write_iops_device": WRITES,
}
_LIMITS_V2 = {"rbps": READ_BYTES, "wbps": WRITTEN_BYTES, "riops": READS, "wiops": WRITES}
_PASSED_V1 = {
    "io_service_bytes": {"Read": "read_bytes_total", "Write": "written_bytes_total"},
    "io_serviced": {"Read": "reads_total", "Write": "writes_total"},
}
_PASSED_V2 = {
    "rbytes": "read_bytes_total", "wbytes": "written_bytes_total", "rios": "reads_total", "wios": "writes_total"
}  # fmt: skip

# By the number of a device (``major:minor``), then by name.
ByDevice = dict[str, dict[str, float]]


class StorageLimits:
    """Reads the limits in force for a job, in control groups of versions 1 and 2.

    Args:
        root: where /proc and /sys are.
        files: the probe's files.
    """

    def __init__(self, root: Path, files: KeptFiles) -> None:
        self._root, self._files = root, files
        self._groups = [Governing(controller, root) for controller in ("blkio", UNIFIED)]
        self._limits: dict[ControlGroup, ByDevice] = {}
        self._next_ns = 0

    def sample(self, time_ns: int, pids: Iterable[int]) -> Iterator[Reading]:
        """Each limit as it is set now, and what went through since the group was made."""
        if time_ns >= self._next_ns:
            self._next_ns = time_ns + PERIOD_NS
            self._limits = {group: limits for group in self._governing(pids) if (limits := self._set(group))}
        for group, limits in self._limits.items():
            passed = self._passed(group)
            for number, limit in limits.items():
                subject = f"throttle:{self._name(number)}:{group.path}"
                for name, value in {**limit, **passed.get(number, {})}.items():
                    yield Reading(time_ns, "io", subject, name, value)

    def _governing(self, pids: Iterable[int]) -> Iterator[ControlGroup]:
        """The groups whose limits hold for the job: in version 1 a group's limit does not hold for those below it."""
        pids = tuple(pids)
        for groups in self._groups:
            groups.update(pids)
            for group in groups.groups.values():
                if group.version == 2 or group.directory in groups.own:
                    yield group

    def _set(self, group: ControlGroup) -> ByDevice:
        if group.version == 2:
            return _pairs(self._read(group, "io.max"), _LIMITS_V2)
        found: ByDevice = {}
        for file, name in _LIMITS_V1.items():
            for line in self._read(group, f"blkio.throttle.{file}"):
                number, _, limit = line.partition(" ")
                found.setdefault(number, {})[name] = float(limit)
        return found

    def _passed(self, group: ControlGroup) -> ByDevice:
        if group.version == 2:
            return _pairs(self._read(group, "io.stat"), _PASSED_V2)
        found: ByDevice = {}
        for file, names in _PASSED_V1.items():
            for words in map(str.split, self._read(group, f"blkio.throttle.{file}")):
                if len(words) == 3 and words[1] in names:
                    found.setdefault(words[0], {})[names[words[1]]] = float(words[2])
        return found

    def _read(self, group: ControlGroup, file: str) -> list[str]:
        """Lines of a group's file; none where the controller is off, as in the topmost group, or the group has gone."""
        try:
            return self._files.read(f"{group.directory}/{file}").decode(errors="replace").splitlines()
        except OSError:
            return []

    def _name(self, number: str) -> str:
        try:
            return (self._root / f"sys/dev/block/{number}").resolve(strict=True).name
        except OSError:
            return number


def _pairs(lines: Iterable[str], names: Mapping[str, str]) -> ByDevice:
    """Lines such as ``254:0 rbps=max riops=400``; what is ``max`` is no limit."""
    found: ByDevice = {}
    for line in lines:
        number, *pairs = line.split()
        for name, _, value in (pair.partition("=") for pair in pairs):
            if name in names and value.isdigit():
                found.setdefault(number, {})[names[name]] = float(value)
    return found
