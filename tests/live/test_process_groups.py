"""What torch keeps in memory of a process's rank, read from interpreters of all versions, and from torch itself."""

import sys

import pytest

from perfdoctor.capture.variables import Variables
from perfdoctor.knowledge.launchers import TORCH
from perfdoctor.probes.readers.process_groups import DefaultGroup, DefaultGroups
from tests.processes.attaching import job
from tests.processes.interpreters import interpreter

# As torch has it: a module with a table of groups, and behind each group an object with two numbers, 16 bytes after its
# head as in those of torch before 2.2. The table was larger once, and what it does not have any more leaves gaps.
STAND_IN = """
import struct, sys, types

class Group:
    __slots__ = ("behind",)

module = types.ModuleType("torch.distributed.distributed_c10d")
group, other, gone = Group(), Group(), [Group() for _ in range(300)]
group.behind, other.behind = struct.pack("ii", 2, {size}), struct.pack("ii", 0, 2)
ranks = {{number: {{}} for number in gone}}
for number in gone:
    del ranks[number]
ranks.update({{group: {{rank: rank for rank in range(4)}}, other: {{0: 0, 1: 1}}}})
module._pg_group_ranks, module._default_pg_init_method = ranks, {meeting!r}
sys.modules[module.__name__] = module
print("ready 1", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
@pytest.mark.parametrize("meeting", ["tcp://node0:29500?rank=2", "file:///shared/Läufe/meeting", None])
def test_the_rank_is_read_from_each_interpreter(version: str, meeting: str | None) -> None:
    with job(interpreter(version), "-c", STAND_IN.format(size=4, meeting=meeting)) as process:
        assert DefaultGroups().of(process.pid) == DefaultGroup(2, 4, meeting or "")


def test_numbers_that_do_not_agree_are_none() -> None:
    with job(sys.executable, "-c", STAND_IN.format(size=3, meeting=None)) as process:
        assert DefaultGroups().of(process.pid) is None


def test_an_interpreter_without_torch_has_no_group() -> None:
    with job(sys.executable, "-c", "import sys; print('ready 1', flush=True); sys.stdin.read()") as process:
        assert DefaultGroups().of(process.pid) is None


TORCH_ITSELF = """
import os, sys
import torch.distributed as dist

meeting = {meeting}
dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
dist.new_group([0])
if not (child := os.fork()):
    sys.stdin.read()
print("child", child, flush=True)
print("ready", os.getpid(), flush=True)
sys.stdin.read()
"""


def test_torch_itself_tells_rank_and_meeting_and_no_child_has_them() -> None:
    meeting = "f'file:///dev/shm/perfdoctor-{os.getpid()}'"
    with job(sys.executable, "-c", TORCH_ITSELF.format(meeting=meeting)) as process:
        child = next(int(line.split()[1]) for line in process.lines if line.startswith("child"))
        told, of_child = (Variables().of(pid) for pid in (process.pid, child))
    assert told is not None
    assert of_child is not None
    assert (told[TORCH.rank], told[TORCH.world]) == ("0", "1")
    assert told[TORCH.run[0]] == f"file:///dev/shm/perfdoctor-{process.pid}"
    assert TORCH.rank not in of_child
