"""One job on two hosts, each a namespace with a name and process ids of its own, that hangs: one report of both."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.processes.attaching import ENVIRONMENT, PATIENCE_S, is_a_diagnosis, perfdoctor
from tests.processes.hosts import NEEDS_HOSTS, free_port, on_host
from tests.processes.stuck import JOBS

pytestmark = NEEDS_HOSTS

# On each host: its rank, and perfdoctor as soon as all ranks have come to where they hang. No rank is ended while the
# other host still looks: it would be gone there.
HOST = """
"$PYTHON" "$JOBS" "$NAME" & rank=$!
until [ -e "$STUCK_FOLDER/ready.0" ] && [ -e "$STUCK_FOLDER/ready.1" ]; do sleep 0.2; done
"$PYTHON" -m perfdoctor attach $rank --duration 8 --recording "$STUCK_FOLDER/host$RANK.perfdoctor"
touch "$STUCK_FOLDER/done.$RANK"
until [ -e "$STUCK_FOLDER/done.0" ] && [ -e "$STUCK_FOLDER/done.1" ]; do sleep 0.2; done
kill -9 $rank
"""


@contextmanager
def host(rank: int, name: str, port: int, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {
        **ENVIRONMENT,
        "PYTHON": sys.executable,
        "JOBS": str(JOBS),
        "NAME": name,
        "STUCK_FOLDER": str(folder),
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = on_host(f"node{rank}", HOST)
    with subprocess.Popen(command, env=environment, start_new_session=True, **quiet) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def recorded(name: str, folder: Path) -> list[Path]:
    """Recordings of both hosts of a job in which something was planted."""
    port = free_port()
    with ExitStack() as stack:
        hosts = [stack.enter_context(host(rank, name, port, folder)) for rank in (0, 1)]
        for process in hosts:
            process.wait(timeout=PATIENCE_S)
    return [folder / f"host{rank}.perfdoctor" for rank in (0, 1)]


def test_the_rank_that_holds_up_the_one_on_the_other_host_is_named(tmp_path: Path) -> None:
    files = recorded("lock_order", tmp_path)
    answer = perfdoctor("report", *files, "--json", tmp_path / "a.json", "--lang", "en")
    assert answer.status == 0, answer.err
    assert answer.out.startswith("The job is stuck: "), answer.out
    is_a_diagnosis(answer.told)
    stuck = answer.told["stuck"]
    assert (stuck["kind"], stuck["rank"]) == ("lock", 1)
    assert [halt["host"] for halt in stuck["chain"]] == ["node1"]
    assert [(halt["host"], halt["collective"]) for halt in stuck["waiting"]] == [("node0", "all_reduce")]
    alone = perfdoctor("report", files[0], "--json", tmp_path / "b.json").told["stuck"]
    assert (alone["kind"], alone["ranks"]) == ("missing_rank", [1])


def test_a_slow_download_on_one_host_is_no_hang(tmp_path: Path) -> None:
    files = recorded("slow_download", tmp_path)
    assert perfdoctor("report", *files, "--json", tmp_path / "a.json").told["stuck"] is None
