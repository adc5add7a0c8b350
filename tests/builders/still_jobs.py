"""Jobs in which nothing moves, as probes see them: ranks that wait at one place, their workers and programs."""

import json
from collections.abc import Iterable
from typing import Any

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import ProcessSeen, Sample, WaitSeen
from perfdoctor.results.stuck import Stuck
from perfdoctor.stuck.follow import find_stuck
from tests.builders import jobs
from tests.builders.jobs import START

TORCH = "/v/lib/python3.11/site-packages/torch"
LOCK = Frame("/home/me/train.py", "fill", 60)
MAIN = Frame("/home/me/train.py", "<module>", 1)
TRAIN = Frame("/home/me/train.py", "main", 40)
# The stack of a trainer that waits for its loader's workers.
FOR_BATCH = (
    MAIN,
    TRAIN,
    Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_try_get_data", 1275),
)


def in_call(function: str, line: int = 40) -> tuple[Frame, ...]:
    """The stack of a rank in a function of torch.distributed."""
    return (
        MAIN,
        Frame("/home/me/train.py", "main", line),
        Frame(f"{TORCH}/distributed/distributed_c10d.py", function, 3000),
    )


def rank(
    number: int, *stacks: tuple[Frame, ...], world: int = 2, states: str = "S", call: str | None = "futex", **how: Any
) -> list[Sample]:
    """A rank whose main thread sleeps in one call, at one place."""
    pid = 10 + number
    variables = {"RANK": str(number), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"} if world > 1 else {}
    seen = jobs.process(pid, parent=5 if world > 1 else 1, **variables)
    return [
        *seen,
        *jobs.thread(pid, pid, states, call=call, **{"switches": 0.0, **how}),
        *jobs.stacks(pid, *(stacks or ((MAIN, LOCK),))),
    ]


def waits_in(
    pid: int, call: str, others: object = None, *, ends_s: float | None = None, handling: str = ""
) -> WaitSeen:
    """What was found when a wait was looked into."""
    ends_ns = None if ends_s is None else jobs.at(ends_s)
    return WaitSeen(START + NS_PER_S, pid, call, 3, "", json.dumps(others), ends_ns, handling)


def found(*samples: Iterable[Sample] | Sample) -> Stuck | None:
    """What holds a job up of which all this was seen; None if it is not stuck."""
    every: list[Sample] = []
    for one in samples:
        every += [one] if isinstance(one, tuple) and hasattr(one, "_fields") else list(one)  # type: ignore[list-item,arg-type]
    return find_stuck({"": jobs.timeline(every)})


def launcher() -> list[Sample]:
    """Whoever has started the ranks."""
    return [
        *jobs.process(5, uses_torch=False),
        *jobs.thread(5, 5, "S", call="wait4", switches=0.0),
    ]


def worker(pid: int, *, states: str = "S", stack: tuple[Frame, ...] = (MAIN, LOCK), **how: Any) -> list[Sample]:
    """A loader worker of rank 1; one that runs uses the CPU."""
    run = 0.9 if states == "R" else 0.0
    return [
        *jobs.process(pid, parent=11, forked=True),
        *jobs.thread(pid, pid, states, name="pt_data_worker", **{"switches": 0.0, "run": run, **how}),
        *jobs.stacks(pid, stack),
    ]


def program(pid: int, parent: int, states: str = "S", *, name: str = "program", **how: Any) -> list[Sample]:
    """A process that runs another program than its parent."""
    seen = ProcessSeen(START, pid, parent, START - 9 * NS_PER_S, name, False, False, name, "null")
    return [seen, *jobs.thread(pid, pid, states, **{"switches": 0.0, **how})]


def named(stuck: Stuck | None) -> tuple[str, int | None]:
    """What holds a job up that must be stuck, and which rank."""
    assert stuck is not None
    return stuck.kind, stuck.rank
