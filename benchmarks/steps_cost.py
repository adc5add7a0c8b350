"""What ``attach --steps`` costs a job: CPU time of the calls that its probes see, with the probes in place and without.

    python benchmarks/steps_cost.py [--write]

As root, in some seconds: a process with torch makes one kind of call many times over, by turns with and without the
probes. Of each turn the lower quartile of its parts counts: whoever else runs on the machine only adds to a call.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from perfdoctor.capture.job import Job
from perfdoctor.probes.steps import StepsProbe
from perfdoctor.recording.clock import now_ns

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import jobs
from documents import fill

TURNS = 5
CALLS = {
    "passed over": "a scope that is no optimizer's: a batch of a loader, `zero_grad`",
    "optimizer": "a step of an optimizer",
    "backward": "a backward pass",
}
ORDINARY_STEP = {"passed over": 2, "optimizer": 1, "backward": 1}
JOB = """
import sys, time, torch
torch.set_num_threads(1)
enter, leaf = torch.ops.profiler._record_function_enter_new, torch.ones(1, requires_grad=True)
calls = {
    "passed over": lambda: enter("Optimizer.zero_grad#SGD.zero_grad", None),
    "optimizer": lambda: enter("Optimizer.step#SGD.step", None),
    "backward": lambda: torch.autograd.grad(leaf * 2, leaf),
}
for line in sys.stdin:
    call, parts = calls[line.strip()], []
    for _ in range(16):
        start = time.thread_time()
        for _ in range(200):
            call()
        parts.append((time.thread_time() - start) / 200)
    print(1e6 * sorted(parts)[3], flush=True)
"""


class Caller:
    """The process that makes the calls."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def microseconds(self, call):
        """CPU time of one such call."""
        print(call, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def measure():
    """By call, how many microseconds longer it takes, turn by turn."""
    caller = Caller()
    for call in CALLS:
        caller.microseconds(call)
    watched, longer = Job(caller.process.pid), {call: [] for call in CALLS}
    list(watched.refresh(now_ns()))
    for _ in range(TURNS):
        alone = {call: caller.microseconds(call) for call in CALLS}
        probe = StepsProbe()
        if refused := list(probe.open(watched)):
            sys.exit(f"{refused[0].reason}\n{refused[0].enable}")
        for call in CALLS:
            longer[call].append(caller.microseconds(call) - alone[call])
        list(probe.close())
    watched.close()
    caller.process.kill()
    return longer


def table(longer):
    rows = [
        f"| {what} | {statistics.median(longer[call]):.1f} | {min(longer[call]):.1f} to {max(longer[call]):.1f} |"
        for call, what in CALLS.items()
    ]
    step = sum(statistics.median(longer[call]) * times for call, times in ORDINARY_STEP.items())
    return "\n".join(
        [
            "| call | longer, µs | of five turns |",
            "|---|---|---|",
            *rows,
            "",
            f"A step with all of these, the first one twice, takes {step:.1f} µs longer.",
            "",
            f"Measured on {jobs.machine()}.",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/overhead.md")
    options = parser.parse_args()
    text = table(measure())
    print(text)
    if options.write:
        fill("overhead.md", "steps", text)


if __name__ == "__main__":
    main()
