"""How often `perfdoctor attach` names rank and kind of a planted hang rightly, and calls a slow job stuck.

    python benchmarks/stuck.py [--seconds 12] [--at-a-time 5] [NAME …]

Each job of `benchmarks/stuck_jobs.py` is started, watched once from outside, and ended. The table goes to standard
output, as docs/stuck.md has it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.processes import stuck


class Planted(NamedTuple):
    """A job, and what is right to say of it.

    Attributes:
        ranks: how many it is started with.
        rank: who holds the others up; None where it is no single one.
        kind: as ``perfdoctor.results.stuck`` has it; "" for a job that only steps slowly.
    """

    name: str
    kind: str
    ranks: int = 2
    rank: int | None = 1


HANGS = (
    Planted("lock_order", "lock"),
    Planted("held_at_fork", "lock"),
    Planted("killed_holder", "lock"),
    Planted("dead_prefetcher", "lock"),
    Planted("killed_pool_worker", "lock"),
    Planted("worker_in_lock", "lock"),
    Planted("locked_file", "file_lock"),
    Planted("silent_fifo", "pipe"),
    Planted("own_pipe", "pipe"),
    Planted("unread_output", "pipe"),
    Planted("worker_in_pipe", "pipe"),
    Planted("in_backward", "pipe"),
    Planted("silent_server", "socket"),
    Planted("dropped_connection", "socket"),
    Planted("dead_file_server", "storage"),
    Planted("forgotten_breakpoint", "debugger"),
    Planted("traced", "debugger"),
    Planted("asks_on_terminal", "terminal"),
    Planted("lock_beside_monitors", "lock"),
    Planted("lock_beside_threads", "lock"),
    Planted("queue_beside_monitor", "lock"),
    Planted("queue_beside_monitor", "lock", ranks=1, rank=None),
    Planted("stopped", "stopped"),
    Planted("all_stopped", "stopped", rank=None),
    Planted("stopped_worker", "stopped"),
    Planted("handler_waits", "exception"),
    Planted("handler_reports", "exception"),
    Planted("at_exit", "exit"),
    Planted("thread_at_exit", "exit"),
    Planted("holds_gil", "gil"),
    Planted("endless_loop", "loop"),
    Planted("endless_loop", "loop", ranks=1, rank=None),
    Planted("waits_for_file", "sleep"),
    Planted("waits_for_child", "child_process"),
    Planted("locked_file", "file_lock", ranks=1, rank=None),
    Planted("other_collective", "collective_mismatch", ranks=3, rank=2),
    Planted("fewer_batches", "collective_mismatch", ranks=3, rank=2),
    Planted("both_receive", "collective_mismatch", rank=None),
    Planted("other_group", "collective_mismatch", rank=None),
    Planted("gone_rank", "missing_rank"),
    Planted("missing_rank", "missing_rank", ranks=3, rank=2),
    Planted("unserved_store", "rendezvous", rank=None),
)
SLOW = (
    Planted("long_steps", "", ranks=1),
    Planted("late_rank", ""),
    Planted("long_checkpoint", ""),
    Planted("evaluation", "", ranks=1),
    Planted("compilation", ""),
    Planted("slow_download", ""),
    Planted("slow_worker", ""),
    Planted("rare_answers", ""),
    Planted("sleeping_steps", "", ranks=1),
)

# Written after the mechanism was finished, and watched once before anything was changed for them.
NEW_HANGS = (
    Planted("full_queue", "lock"),
    Planted("silent_child", "socket"),
    Planted("record_lock", "file_lock"),
    Planted("request_with_timeout", "socket"),
    Planted("gathers_objects", "collective_mismatch", ranks=3, rank=2),
    Planted("lock_over_request", "lock"),
    Planted("polled_queue", "lock"),
    Planted("answer_on_input", "pipe"),
    Planted("backtracking", "loop"),
    Planted("stopped_program", "child_process"),
)
NEW_SLOW = (
    Planted("long_call", ""),
    Planted("hashes_file", ""),
    Planted("download_in_thread", ""),
    Planted("polls_compiler", ""),
    Planted("long_pool_task", ""),
)


def watch(jobs: Sequence[int], seconds: float) -> list[dict[str, object] | None]:
    """What perfdoctor says of each job, by the process id of its launcher: the part ``stuck`` of its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.json") for number in range(len(jobs))]
        commands = [
            [
                sys.executable,
                "-m",
                "perfdoctor",
                "attach",
                str(pid),
                "--duration",
                str(seconds),
                "--flight-recorder",
                "--json",
                str(file),
            ]
            for pid, file in zip(jobs, files, strict=True)
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for watching in [subprocess.Popen(command, **quiet) for command in commands]:
            watching.wait()
        return [json.loads(file.read_text())["stuck"] for file in files]


def judge(planted: Planted, said: dict[str, object] | None) -> str:
    """A row of the table."""
    told = ("", None) if said is None else (said["kind"], said["rank"])
    right = told == ((planted.kind, planted.rank) if planted.kind else ("", None))
    since = "" if said is None else f"{said['since_s']} s"
    named = "-" if told[1] is None else str(told[1])
    return (
        f"| `{planted.name}` | {planted.ranks} | {planted.kind or 'not stuck'} "
        f"| {'right' if right else 'WRONG'}: {told[0] or 'not stuck'} | {named} | {since} |"
    )


def main() -> None:
    """Plants, watches, counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--at-a-time", type=int, default=5, help="hangs; slow jobs compute, and come two at a time")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    print("| job | ranks | planted | perfdoctor says | rank | still for |\n|---|---|---|---|---|---|", flush=True)
    hangs = arguments.at_a_time
    for planted, at_a_time in ((HANGS, hangs), (SLOW, 2), (NEW_HANGS, hangs), (NEW_SLOW, 2)):
        wanted = [one for one in planted if not arguments.names or one.name in arguments.names]
        for first in range(0, len(wanted), at_a_time):
            for row in round_of(wanted[first : first + at_a_time], arguments.seconds):
                print(row, flush=True)


def round_of(planted: Sequence[Planted], seconds: float) -> list[str]:
    """Rows of some jobs that are watched at the same time."""
    with ExitStack() as stack:
        jobs = [stack.enter_context(stuck.planted(one.name, one.ranks)) for one in planted]
        time.sleep(1.0)  # what was planted takes a moment to come to rest
        return [judge(one, said) for one, said in zip(planted, watch(jobs, seconds), strict=True)]


if __name__ == "__main__":
    main()
