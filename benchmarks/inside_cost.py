"""What ``with diagnose():`` costs a training step, in microseconds: before it, while it watches, after it.

    python benchmarks/inside_cost.py [--runs 5] [--steps 4000]

Two loops: empty steps (the ``with`` alone), and steps of a small real model with a loader, where every kind of mark is
made. Each run is a process of its own; what is printed is the median over runs of the median step. The sidecar works
meanwhile, as it does for users: on few cores its share of the CPU shows in the mean, which is printed too.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

KINDS = ("empty", "model")


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
    """One run: medians and means of steps before, while and after perfdoctor watches, in microseconds."""
    import torch  # noqa: F401 - perfdoctor watches where torch is there

    from perfdoctor import diagnose, inside

    bare = {"empty": empty_steps, "model": model_steps}[kind]()
    timed(bare, steps // 4)
    before = timed(bare, steps)

    def watched():
        with diagnose(steps=10 * steps, warmup=10, report=None):
            bare()

    until = time.monotonic() + 30
    while time.monotonic() < until and (inside._session is None or inside._session._observed_from is None):
        timed(watched, 20)
    during = timed(watched, steps)
    inside._session.finish()
    inside._session.companion.wait(60)
    after = timed(watched, steps)
    seconds = {"before": before, "watching": during, "after": after}
    return {
        when: {"median": statistics.median(found) * 1e6, "mean": statistics.mean(found) * 1e6}
        for when, found in seconds.items()
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
    print(f"{'':8}{'before':>10}{'watching':>10}{'after':>10}   microseconds per step; what it adds (and to the mean)")
    for kind in KINDS:
        command = [sys.executable, __file__, "--one", kind, "--steps", str(options.steps)]
        runs = [json.loads(_output(command)) for _ in range(options.runs)]
        middle = {
            (when, what): statistics.median(run[when][what] for run in runs)
            for when in ("before", "watching", "after")
            for what in ("median", "mean")
        }
        figures = "".join(f"{middle[when, 'median']:10.2f}" for when in ("before", "watching", "after"))
        added = ", ".join(
            f"{when} +{middle[when, 'median'] - middle['before', 'median']:.2f} "
            f"({middle[when, 'mean'] - middle['before', 'mean']:+.2f})"
            for when in ("watching", "after")
        )
        print(f"{kind:8}{figures}   {added}")


def _output(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
