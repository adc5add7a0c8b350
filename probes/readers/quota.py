"""CPU quotas of the job's control groups, and how often they stopped it."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from perfdoctor.probes.readers.cgroup import Governing, Group
from perfdoctor.probes.readers.procfs import KeptFiles, counters
from perfdoctor.recording.schema import Fact, Reading


class Quotas:
    """Reads quota and throttling of the control groups above a job, in versions 1 and 2.

    Args:
        root: where /proc and /sys are.
        files: the probe's files.

    Attributes:
        cores: the tightest quota, in cores; None where there is none, or none that can be read.
    """

    def __init__(self, root: Path, files: KeptFiles) -> None:
        self.cores: float | None = None
        self._files = files
        self._governing = Governing("cpu", root)
        self._reported: str | None = None

    def limits(self, time_ns: int, pids: Iterable[int]) -> Iterator[Reading | Fact]:
        """Quotas as they are set now."""
        self._governing.update(pids)
        quotas = {group: self._quota_cores(group) for group in self._governing.groups.values()}
        limits = [cores for cores in quotas.values() if cores]
        self.cores = min(limits, default=None)
        for group, cores in quotas.items():
            if cores:
                yield Reading(time_ns, "cpu", group.subject, "quota_cores", cores)
        if not quotas or None in quotas.values():
            return
        text = "unlimited" if self.cores is None else f"{self.cores:g}"
        if text != self._reported:
            self._reported = text
            yield Fact(time_ns, "cpu", "job", "cpu_quota", text)

    def throttling(self, time_ns: int, pids: Iterable[int]) -> Iterator[Reading]:
        """How many periods a quota was in force, and in how many of them the group was stopped."""
        self._governing.update(pids)
        for group in self._governing.groups.values():
            try:
                values = counters(self._files.read(f"{group.directory}/cpu.stat"))
            except OSError:
                continue
            if "nr_periods" not in values:
                continue
            if "throttled_usec" in values:
                stopped_s = values["throttled_usec"] / 1e6
            else:
                stopped_s = values.get("throttled_time", 0) / 1e9
            yield Reading(time_ns, "cpu", group.subject, "quota_periods_total", values["nr_periods"])
            yield Reading(time_ns, "cpu", group.subject, "throttled_periods_total", values["nr_throttled"])
            yield Reading(time_ns, "cpu", group.subject, "throttled_seconds_total", stopped_s)

    def _quota_cores(self, group: Group) -> float | None:
        """Quota of one group in cores; 0 for unlimited, None if unreadable."""
        try:
            if group.version == 2:
                quota, period = self._files.read(f"{group.directory}/cpu.max").split()
            else:
                quota = self._files.read(f"{group.directory}/cpu.cfs_quota_us").strip()
                period = self._files.read(f"{group.directory}/cpu.cfs_period_us").strip()
        except FileNotFoundError:
            return 0.0  # The topmost group, or one for which the controller is off: nothing limits it.
        except (OSError, ValueError):
            return None
        return 0.0 if quota == b"max" or int(quota) <= 0 else int(quota) / int(period)
