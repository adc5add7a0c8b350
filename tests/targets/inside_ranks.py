"""Two ranks train under ``diagnose()`` in the manner that a test asks for; each prints its losses' exact sum.

Under torchrun their gradients are exchanged. With ``--fate`` they are started by the first one and train for
themselves, and the second one meets its fate in the first isolated step.
"""

# ruff: noqa: TID253
import argparse
import atexit
import os
import signal
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from leaving import leave_group
from torch import nn
from torch.utils.data import DataLoader, Dataset

from perfdoctor import diagnose, phase
from perfdoctor.probes.inside.isolated_phases import IsolatedPhases

CALL = torch.nn.Module.__call__


class Digits(Dataset):
    """Random digits; those of the second rank cost more time, if a test asks for that."""

    def __init__(self, late_ms):
        self.late_ms = late_ms

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        until = time.perf_counter() + self.late_ms / 1000
        while time.perf_counter() < until:
            pass
        return torch.rand(64, generator=torch.Generator().manual_seed(index)), index % 10


def start_pair():
    """Starts the second rank from the first one, without torchrun, which would end all if one ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    environment = {**os.environ, "RANK": "1", "LOCAL_RANK": "1"}
    os.environ.update(RANK="0", LOCAL_RANK="0")
    return subprocess.Popen([sys.executable, *sys.argv], env=environment)


def meet_fate(fate, enough):
    """Lets this rank leave, or die, as soon as steps are isolated, or will not be: on a busy machine ranks part."""
    begins, ends = IsolatedPhases._start, IsolatedPhases.end

    def meet():
        enough.append(fate)
        if fate == "dies":
            os.kill(os.getpid(), signal.SIGKILL)

    def start(isolated):
        begins(isolated)
        meet()

    def end(isolated, *why):
        ends(isolated, *why)
        if not enough:
            meet()

    IsolatedPhases._start, IsolatedPhases.end = start, end


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--late-ms", type=float, default=0)
    parser.add_argument("--fate", choices=("leaves", "dies"))
    return parser.parse_args()


def done(options, steps, enough):
    """All ranks keep in step and end after the same one, as long as all are there."""
    ended = steps >= options.steps if options.steps else torch.nn.Module.__call__ is CALL and steps > 20
    if enough:
        return ended or options.fate in enough
    everyone = torch.tensor(float(ended))
    try:
        dist.all_reduce(everyone, dist.ReduceOp.MIN)
    except RuntimeError:  # the other one is gone
        enough.append("alone")
        return ended
    return bool(everyone)


def end_at_once(trained):
    """Ends this process without the interpreter's own shutdown, in which gloo's threads abort now and then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if trained else 1)


def main():
    options, trained = parse(), []
    atexit.register(end_at_once, trained)  # first, so that it comes after what perfdoctor writes at the end
    second = start_pair() if options.fate and "RANK" not in os.environ else None
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    if not options.fate:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses, enough = [], []
    if rank and options.fate:
        meet_fate(options.fate, enough)
    with diagnose(steps=60, report=None, json=options.json, profile=0) as doctor:
        for images, targets in DataLoader(Digits(rank * options.late_ms), 16, shuffle=True):
            loss = nn.functional.cross_entropy(model(images), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                with phase("noting down"):
                    time.sleep(0.002)
            losses.append(loss.item())
            if done(options, len(losses), enough):
                break
    total = torch.tensor(losses, dtype=torch.float64).sum().item().hex()
    # In one write: the ranks share the pipe.
    os.write(1, f"rank{rank} {total}\nsteps{rank} {len(losses)}\n".encode())
    until = time.monotonic() + 60
    while rank == 0 and doctor.diagnosis is None and not options.steps and time.monotonic() < until:
        time.sleep(0.1)
    if second is not None:
        print(f"second {second.wait()}", flush=True)
    if not options.fate:
        leave_group()
    trained.append(True)


if __name__ == "__main__":
    main()
