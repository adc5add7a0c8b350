"""The session with a GPU, in two steps: what is gathered where the GPU is, can be told anywhere, again and again.

    python examples/gpu/session.py gather --into FOLDER [--only NAME ...] [--minutes M]
    python examples/gpu/session.py tell [FOLDER ...]

``gather`` runs the GPU examples and the jobs of the corpus that need a GPU, half a minute each: pace, recording of
attach, trace, and pace of the fixed state. Nothing is analysed there. Each job's folder is whole before the next job
is looked at, so a session that is cut off keeps what it has, and a later one adds to it.

``tell`` adds the recordings to the corpus and small traces beside them (tests/recordings), and writes
docs/accuracy-gpu.md. Without a folder it writes the page anew from what the repository has.
"""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import gathering
import jobs
import looking
import page
import planted
import telling
from asked import DEVICE

ROOT = jobs.EXAMPLES.parent
_TIMER_S = 60.0


def main() -> int:
    arguments = parse()
    if arguments.command == "gather":
        return gather(arguments)
    return tell(arguments)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    gatherer = commands.add_parser("gather", help="on the machine with the GPU")
    gatherer.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="where to write")
    gatherer.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these jobs, in this order")
    gatherer.add_argument("--minutes", type=float, default=25.0, help="start no job that may end later (default 25)")
    gatherer.add_argument("--seconds", type=float, default=2.2, help="to measure a pace (default 2.2)")
    gatherer.add_argument("--duration", type=float, default=6.0, help="to attach (default 6)")
    gatherer.add_argument("--inside", action="store_true", help="look at examples from inside, too: 25 s more each")
    gatherer.add_argument("--fixed", action="store_true", help="attach to the fixed states, too")
    gatherer.add_argument(
        "--device", choices=("gpu", "cpu"), default="gpu", help="cpu: a dry run, which tries the script only"
    )
    teller = commands.add_parser("tell", help="anywhere, later")
    teller.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="what was gathered")
    teller.add_argument("--into", type=Path, default=ROOT, help="in place of the repository")
    teller.add_argument(
        "--rename", action="append", default=[], metavar="NAME=WORD", help="in recordings, as corpus.py add has it"
    )
    return parser.parse_args()


def gather(arguments: argparse.Namespace) -> int:
    """Looks at the jobs that were asked for."""
    until = time.monotonic() + arguments.minutes * 60
    jobs.end_with_finally()
    if arguments.device == "cpu":
        os.environ[DEVICE] = "cpu"
    reason = jobs.why_no_gpu()
    if reason:
        sys.exit(f"{reason}; --device cpu tries the script without one")
    chosen = planted.chosen(arguments.only)
    plan = looking.Plan(arguments.seconds, arguments.duration, arguments.inside, arguments.fixed, gathering.variables())
    done = gathering.gather(chosen, plan, arguments.into, until)
    if not arguments.only and time.monotonic() + _TIMER_S < until:
        gathering.check_timer(arguments.into)
    return 0 if done else 1


def tell(arguments: argparse.Namespace) -> int:
    """Takes what was gathered, and writes the page."""
    kept = telling.Kept(arguments.into)
    for folder in arguments.folders:
        if arguments.into.resolve() == ROOT and gathering.is_dry(folder):
            sys.exit("a dry run is no result: --into another folder")
        print("taken:", *kept.take(folder, dict(rename.split("=", 1) for rename in arguments.rename)))
    print("\n".join(page.write(arguments.into, kept)) + f"\nwritten: {arguments.into / page.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
