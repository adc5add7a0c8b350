"""What ``with diagnose():`` costs a training step, in microseconds: before it, while it watches, after it.

    python benchmarks/inside_cost.py [--runs 5] [--steps 4000]

Two loops: empty steps (the ``with`` alone), and steps of a small real model with a loader, where every kind of mark is
made. Each run is a process of its own; what is printed is the median over runs. The sidecar works meanwhile, as it does
for users.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

KINDS = ("empty", "model")
TURN = 40


def empty_steps():
    """Steps that do nothing."""
    return lambda: None


def model_steps():
    """Steps of a small classifier: a batch from a loader, forward, loss, backward, optimizer."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.rand(100_000, 64), torch.zeros(100_000, dtype=torch.long)), 32)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    model, criterion = torch.nn.Sequential(*layers), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(loader)

    def step():
        nonlocal batches
        try:
            images, targets = next(batches)
        except StopIteration:
            batches = iter(loader)
            images, targets = next(batches)
        loss = criterion(model(images), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(step, count):
    """Seconds of each of ``count`` steps."""
    now = time.perf_counter
    found = []
    for _ in range(count):
        begun = now()
        step()
        found.append(now() - begun)
    return found


def measure(kind, steps):
    """One run: steps with and without, while perfdoctor watches and after it stepped aside, in microseconds."""
    import torch  # noqa: F401 - perfdoctor watches where torch is there

    from perfdoctor import diagnose, inside

    bare = {"empty": empty_steps, "model": model_steps}[kind]()

    def watched():
        with diagnose(steps=1000 * steps, warmup=10, report=None):
            bare()

    until = time.monotonic() + 30
    while time.monotonic() < until and (inside._session is None or inside._session._observed_from is None):
        timed(watched, 20)
    session = inside._session
    before, during = [], []
    # In turns, so that a machine that gets slower does not count; the first steps of a turn fill Python's caches anew.
    for _ in range(steps // TURN):
        during += timed(watched, TURN + 10)[10:]
        session._hooks.remove()
        before += timed(bare, TURN + 10)[10:]
        session._hooks.install()
    session.finish()
    session.companion.wait(60)
    after, again = [], []
    for _ in range(steps // TURN):
        after += timed(watched, TURN)
        again += timed(bare, TURN)
    found = {"before": before, "watching": during, "again": again, "after": after}
    return {
        when: {"median": statistics.median(values) * 1e6, "low": statistics.quantiles(values, n=10)[0] * 1e6}
        for when, values in found.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.steps)))
        return
    print("microseconds per step: what `with diagnose()` adds to the median (to the fastest tenth)")
    for kind in KINDS:
        command = [sys.executable, __file__, "--one", kind, "--steps", str(options.steps)]
        runs = [json.loads(_output(command)) for _ in range(options.runs)]
        middle = {
            (when, what): statistics.median(run[when][what] for run in runs)
            for when in runs[0]
            for what in ("median", "low")
        }
        for what, one, other in (("watching", "watching", "before"), ("stepped aside", "after", "again")):
            added = [middle[one, which] - middle[other, which] for which in ("median", "low")]
            print(f"{kind:6} {what:14} {added[0]:+7.2f} ({added[1]:+.2f}) on {middle[other, 'median']:.1f}")


def _output(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
