"""What says which rank a process is: the variables of its environment, and what torch itself keeps beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from perfdoctor.knowledge.launchers import MEETING, TORCH
from perfdoctor.knowledge.threads import COLLECTIVES
from perfdoctor.probes.readers.environment import environment_of

if TYPE_CHECKING:
    from perfdoctor.probes.readers.process_groups import DefaultGroups


class Variables:
    """Reads them of several processes."""

    def of(self, pid: int) -> dict[str, str] | None:
        """The variables of a process; of one that exchanges data with other ranks also what torch's default group says.

        What a rank has forked has a copy of its group, and none of the threads that make use of it.

        Returns:
            None where they cannot be read.
        """
        variables = environment_of(pid)
        if variables is None or not exchanges_data(pid):
            return variables
        group = self._groups.of(pid)
        if group is None:
            return variables
        kept = {TORCH.rank: str(group.rank), TORCH.world: str(group.world)}
        meeting = _meeting(group.init_method, variables)
        return variables | kept | (dict.fromkeys(TORCH.run, meeting) if meeting else {})

    @cached_property
    def _groups(self) -> DefaultGroups:
        from perfdoctor.probes.readers.process_groups import DefaultGroups

        return DefaultGroups()


def exchanges_data(pid: int) -> bool:
    """Whether a process has threads that exchange data with other ranks."""
    return any(name.startswith(COLLECTIVES) for name in thread_names(pid))


def thread_names(pid: int) -> Iterator[str]:
    """The names of the threads of a process, of which there may be thousands."""
    folder = f"/proc/{pid}/task"
    try:
        tids = os.listdir(folder)
    except OSError:  # it has ended
        return
    for tid in tids:
        try:
            with open(f"{folder}/{tid}/comm", "rb", buffering=0) as file:
                yield file.read(64).decode(errors="replace")
        except OSError:  # that thread has
            continue


def _meeting(init_method: str, variables: Mapping[str, str]) -> str:
    """Where the ranks of a process meet: an address with its port, or a file; "" if that is not known."""
    if init_method.startswith("env:"):
        return ":".join(map(variables.__getitem__, MEETING)) if all(map(variables.get, MEETING)) else ""
    return init_method.removeprefix("tcp://").partition("?")[0]  # behind it the rank's own number may stand
