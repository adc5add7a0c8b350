"""Control groups, in versions 1 and 2: which of them limit a process, their CPU quotas, and pressure.

A process in a container may not see the groups above its container's: a limit set there shows only in its
effects.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.procfs import KeptFiles, counters
from perfdoctor.probes.readers.storage import Mount, read_mounts
from perfdoctor.recording.schema import Fact, Reading

UNIFIED = ""
"""In place of a controller's name: the version 2 hierarchy, whatever controllers it has."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One control group.

    Attributes:
        version: 1 or 2.
        path: below the place where its hierarchy is mounted, ``/`` for the mounted one itself.
        directory: where its files are, from the root that was asked about, e.g. ``/sys/fs/cgroup/a``.
    """

    version: int
    path: str
    directory: str

    @property
    def subject(self) -> str:
        """Whom readings of this group are about."""
        return f"cgroup:{self.path}"


class Governing:
    """The control groups that govern the processes of a job, found once for each process.

    Args:
        controller: ``cpu``, ``memory``, or ``UNIFIED``.
        root: where /proc and /sys are.

    Attributes:
        own: the groups that processes of the job are in.
        groups: those and all above them.
    """

    def __init__(self, controller: str, root: Path = Path("/")) -> None:
        self.own: dict[str, ControlGroup] = {}
        self.groups: dict[str, ControlGroup] = {}
        self._controller = controller
        self._root = root
        self._known: set[int] = set()
        self._memberships: set[str] = set()

    def update(self, pids: Iterable[int]) -> None:
        """Looks at processes not seen before; those that ended meanwhile are passed over."""
        for pid in pids:
            if pid in self._known:
                continue
            self._known.add(pid)
            try:
                membership = (self._root / f"proc/{pid}/cgroup").read_text(errors="replace")
                if membership not in self._memberships:
                    self._add(groups_of(membership, self._controller, self._root))
                    self._memberships.add(membership)
            except OSError:
                continue

    def _add(self, groups: list[ControlGroup]) -> None:
        for group in groups[:1]:
            self.own[group.directory] = group
        for group in groups:
            self.groups[group.directory] = group


def groups_of(membership: str, controller: str, root: Path = Path("/")) -> list[ControlGroup]:
    """The control groups that govern a process, its own first, then those above it.

    Args:
        membership: what /proc/PID/cgroup says.
        controller: ``cpu``, ``memory``, or ``UNIFIED``.
        root: where /proc and /sys are.

    Returns:
        An empty list where there is no such hierarchy.

    Raises:
        OSError: the mounts cannot be read.
    """
    version, path = _place(membership, controller)
    mount = _hierarchy(read_mounts(root, "self"), controller if version == 1 else UNIFIED)
    if version == 0 or mount is None:
        return []
    inside = path if mount.root == "/" else path.removeprefix(mount.root)
    names = [name for name in inside.split("/") if name]
    # A path that is not there is meant for another namespace: what is mounted is the process's own group.
    if ".." in names or not root.joinpath(mount.point.lstrip("/"), *names).is_dir():
        names = []
    paths = ["/" + "/".join(names[:depth]) for depth in range(len(names), -1, -1)]
    return [ControlGroup(version, path, (mount.point + path).rstrip("/")) for path in paths]


def _place(membership: str, controller: str) -> tuple[int, str]:
    """Version and path of a process's group for a controller; version 0 if there is none."""
    unified = (0, "/")
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            unified = (2, path)
        elif controller and controller in controllers.split(","):
            return 1, path
    return unified


def _hierarchy(mounts: list[Mount], controller: str) -> Mount | None:
    for mount in mounts:
        if mount.filesystem == "cgroup2" and controller == UNIFIED:
            return mount
        if mount.filesystem == "cgroup" and controller and controller in mount.options.split(","):
            return mount
    return None


class Freezers:
    """Tells which processes are frozen with their control group: docker pause, a batch system's suspension.

    A frozen process looks as if it waited: in version 1 for storage (state D), in version 2 for whatever it was in.

    Args:
        root: where /proc and /sys are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._groups: dict[str, tuple[ControlGroup, ...]] = {}  # by what /proc/PID/cgroup says
        self._frozen: dict[str, bool] = {}

    def look_anew(self) -> None:
        """Lets each group be asked again; until then all its processes share one answer."""
        self._frozen.clear()

    def frozen_in(self, pid: int) -> str:
        """The path of the group with which a process is frozen; "" if it is not, or that cannot be told."""
        try:
            membership = (self._root / f"proc/{pid}/cgroup").read_text(errors="replace")
            if membership not in self._groups:
                # Both versions may be mounted. What is frozen above a group shows in its own state.
                both = (groups_of(membership, "freezer", self._root), groups_of(membership, UNIFIED, self._root))
                self._groups[membership] = tuple({one[0].directory: one[0] for one in both if one}.values())
        except OSError:
            return ""
        return next((group.path for group in self._groups[membership] if self._is_frozen(group)), "")

    def _is_frozen(self, group: ControlGroup) -> bool:
        if group.directory not in self._frozen:
            name, says = ("freezer.state", "FROZEN") if group.version == 1 else ("cgroup.events", "frozen 1")
            try:
                lines = (self._root / group.directory.lstrip("/") / name).read_text().splitlines()
            except OSError:  # the root of a hierarchy has none
                lines = []
            self._frozen[group.directory] = says in lines
        return self._frozen[group.directory]


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
        self._root = root
        self._files = files
        self._governing = Governing("cpu", root)
        self._reported: str | None = None

    def refusal(self, pid: int | None) -> Refusal | None:
        """Why no quota of a process (None: ours) can be seen, None where it can."""
        try:
            membership = (self._root / f"proc/{pid or 'self'}/cgroup").read_text(errors="replace")
            groups = groups_of(membership, "cpu", self._root)
        except OSError:
            groups = []
        return None if groups else Refusal("CPU quotas cannot be seen here.", "mount /sys/fs/cgroup")

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

    def _quota_cores(self, group: ControlGroup) -> float | None:
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


def parse_pressure(psi: bytes) -> dict[str, float]:
    """Total stalled seconds by line (``some``, ``full``) of a pressure file."""
    totals: dict[str, float] = {}
    for line in psi.decode(errors="replace").splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if total.isdigit():
            totals[kind] = int(total) / 1e6
    return totals


class Pressure:
    """Reads how long tasks waited for one resource.

    Args:
        resource: ``cpu``, ``memory`` or ``io``; also the name of the probe that reads.
        root: where /proc and /sys are.
        files: the probe's files.
    """

    def __init__(self, resource: str, root: Path, files: KeptFiles) -> None:
        self._resource = resource
        self._files = files
        self._governing = Governing(UNIFIED, root)

    def refusal(self) -> Refusal | None:
        """Why there is no pressure to read, None where the kernel keeps it."""
        try:
            self._files.read(f"/proc/pressure/{self._resource}")
        except OSError as error:
            reason = f"Pressure of {self._resource} cannot be read ({error.strerror})."
            return Refusal(reason, "boot Linux 4.20 or newer with psi=1")
        return None

    def sample(self, time_ns: int, pids: Iterable[int]) -> Iterator[Reading]:
        """Stalled time so far, of the host and of the job's own groups."""
        self._governing.update(pids)
        yield from self._read(time_ns, "host", f"/proc/pressure/{self._resource}")
        for group in self._governing.own.values():
            yield from self._read(time_ns, group.subject, f"{group.directory}/{self._resource}.pressure")

    def _read(self, time_ns: int, subject: str, path: str) -> Iterator[Reading]:
        try:
            totals = parse_pressure(self._files.read(path))
        except OSError:
            return
        for kind, total_s in totals.items():
            # Not every thread of a host can wait for a CPU at once: the kernel prints zeros there.
            if (subject, self._resource, kind) != ("host", "cpu", "full"):
                name = f"{self._resource}_pressure_{kind}_seconds_total"
                yield Reading(time_ns, self._resource, subject, name, total_s)
