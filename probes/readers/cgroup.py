"""Which control groups limit a process: its own and those above it, in versions 1 and 2.

A process in a container may not see the groups above its container's: a limit set there shows only in its
effects.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.probes.readers.mounts import Mount, read_mounts

UNIFIED = ""
"""In place of a controller's name: the version 2 hierarchy, whatever controllers it has."""


@dataclass(frozen=True, slots=True)
class Group:
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
        self.own: dict[str, Group] = {}
        self.groups: dict[str, Group] = {}
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

    def _add(self, groups: list[Group]) -> None:
        for group in groups[:1]:
            self.own[group.directory] = group
        for group in groups:
            self.groups[group.directory] = group


def groups_of(membership: str, controller: str, root: Path = Path("/")) -> list[Group]:
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
    return [Group(version, path, (mount.point + path).rstrip("/")) for path in paths]


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
