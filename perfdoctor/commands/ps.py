"""List the training jobs of this host: trainer, ranks, loader workers, GPUs, age, CPU, memory.

A process counts that has PyTorch loaded. CPU is in cores, over half a second; "idle" is who takes next to none, as a
notebook between two cells. Memory is that of all processes of the job, what they share counted once. Steps per second
are known where the script has `with perfdoctor.diagnose():`. What is not known is "—".
"""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from perfdoctor.capture.jobs import TrainingJob, TrainingJobs, find_jobs
from perfdoctor.commands.arguments import add_language_argument
from perfdoctor.commands.job_list import listing, none_found, unread
from perfdoctor.messages import say
from perfdoctor.reports.language import for_stream
from perfdoctor.reports.outputs import print_text
from perfdoctor.reports.wording import worded

SCHEMA = 1  # grows when a reader of the old one would misread the new one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor ps``."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    add_language_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the list."""
    found = find_jobs()
    if arguments.json:
        print(json.dumps(_document(found), indent=2))
    else:
        print_jobs(found)
    return 0


def print_jobs(found: TrainingJobs) -> None:
    """Prints the jobs as a table, and what could not be looked at below it."""
    with for_stream(sys.stdout):
        parts = [listing(found.jobs) if found.jobs else none_found(found)]
        if found.why_unread is not None:
            parts += [unread(found), "  " + worded(say("jobs.to_see", enable=worded(found.why_unread.enable)))]
    print_text("\n".join(parts) + "\n")


def _document(found: TrainingJobs) -> dict[str, Any]:
    missing = None if found.why_unread is None else {"processes": found.unread, **found.why_unread._asdict()}
    return {"schema": SCHEMA, "jobs": [_job(job) for job in found.jobs], "not_read": missing}


def _job(job: TrainingJob) -> dict[str, Any]:
    return {"pid": job.pid, "ranks": len(job.trainers), **asdict(job), "idle": job.is_idle}
