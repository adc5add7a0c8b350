"""A job on several hosts, played on one machine: each host has a network, a name, process ids and a clock of its own.

Each is a set of Linux namespaces, joined by a bridge. perfdoctor watches on each of them, and `perfdoctor report` takes
the recordings together. Needs root, and the commands ip, tc and unshare.

    sudo .venv/bin/python benchmarks/hosts.py late_input      # one rank prepares its batches more slowly
    sudo .venv/bin/python benchmarks/hosts.py slow_link       # the network of one host carries 20 Mbit/s
    sudo .venv/bin/python benchmarks/hosts.py sound
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

BIN = Path(sys.executable).parent
TRAIN = Path(__file__).with_name("hosts_job.py")
BRIDGE, NETWORK = "pdbridge", "10.77.0"
# By which the clock of each host is ahead of the one before, and its time of day of what it should be.
APART_S, WRONG_S = 5000, 3
LATE_HOST = 1
JOBS: Mapping[str, Mapping[str, str]] = {
    "late_input": {"LATE_RANK": str(LATE_HOST)},
    "slow_link": {"WIDTH": "512"},
    "sound": {},
}
STARTS_S = 12


def main() -> None:
    """Runs the job, watches it, and prints the diagnosis."""
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="perfdoctor-hosts-") as scratch, network(options.hosts, options.job):
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        running = [start(number, options, folder) for number in range(options.hosts)]
        ended = [process.wait() for process in running]
        if any(ended):
            sys.exit(f"A host failed; what it said is in {folder}." if options.keep else "A host failed; see --keep.")
        recordings = [folder / f"host{number}.perfdoctor" for number in range(options.hosts)]
        for number, recording in enumerate(recordings):
            set_wrong_time(recording, number * WRONG_S if options.skewed else 0)
        subprocess.run([BIN / "perfdoctor", "report", *recordings], check=True)


def read_options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--duration", type=float, default=15, metavar="S", help="seconds to watch")
    parser.add_argument("--skewed", action="store_true", help="each host's time of day is wrong by 3 s more")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the recordings, and what was printed")
    return parser.parse_args()


@contextmanager
def network(hosts: int, job: str) -> Iterator[None]:
    """A network namespace for each host, on one bridge."""
    made = [f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"]
    for number in range(hosts):
        made += [
            f"netns add pd{number}",
            f"link add pd{number}a type veth peer name pd{number}b netns pd{number}",
            f"link set pd{number}a master {BRIDGE} up",
            f"-n pd{number} addr add {NETWORK}.{number + 1}/24 dev pd{number}b",
            f"-n pd{number} link set pd{number}b up",
            f"-n pd{number} link set lo up",
        ]
    try:
        for one in made:
            subprocess.run(["ip", *one.split()], check=True)
        if job == "slow_link":
            shaped = f"qdisc add dev pd{LATE_HOST}b root tbf rate 20mbit burst 32kb latency 400ms"
            subprocess.run(["ip", "netns", "exec", f"pd{LATE_HOST}", "tc", *shaped.split()], check=True)
        yield
    finally:
        for number in range(hosts):
            subprocess.run(["ip", "netns", "delete", f"pd{number}"], check=False)
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False)


def start(number: int, options: argparse.Namespace, folder: Path) -> subprocess.Popen[bytes]:
    """A host with its rank, and perfdoctor that watches it."""
    watched = f"--duration {options.duration} --recording {folder}/host{number}.perfdoctor --force"
    script = (
        f"hostname node{number}; {BIN}/python {TRAIN} & pid=$!; sleep {STARTS_S}; "
        f"{BIN}/perfdoctor attach $pid {watched} || exit 1; kill $pid; wait $pid; exit 0"
    )
    spaces = f"--uts --pid --fork --mount-proc --time --monotonic {number * APART_S}"
    variables = {
        **JOBS[options.job],
        "RANK": str(number),
        "WORLD_SIZE": str(options.hosts),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": f"{NETWORK}.1",
        "MASTER_PORT": "29555",
        "GLOO_SOCKET_IFNAME": f"pd{number}b",
        "TRAIN_S": str(STARTS_S + options.duration + 30),
    }
    with (folder / f"host{number}.txt").open("wb") as said:
        return subprocess.Popen(
            ["ip", "netns", "exec", f"pd{number}", "unshare", *spaces.split(), "bash", "-c", script],
            env={**os.environ, **variables},
            stdout=said,
            stderr=said,
        )


def set_wrong_time(recording: Path, seconds: int) -> None:
    """Changes what a host took for the time of day when it was watched: namespaces share one."""
    with sqlite3.connect(recording) as db:
        db.execute("UPDATE meta SET value = value + ? WHERE key = 'epoch_ns'", (seconds * 1_000_000_000,))


if __name__ == "__main__":
    main()
