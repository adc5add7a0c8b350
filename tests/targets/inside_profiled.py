"""Trains a tiny model under ``diagnose()``, with a torch.profiler of its own where a test asks for one."""

# ruff: noqa: TID253
import argparse
import time

import torch
from torch import nn, profiler

from perfdoctor import diagnose

CALL = nn.Module.__call__


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--profile", type=int)
    parser.add_argument("--own", choices=("never", "always", "late"), default="never")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.rand(512, 64)
    own = profiler.profile(activities=[profiler.ProfilerActivity.CPU])
    begun = False
    if options.own == "always":
        begun = True
        own.start()
    # A profiler keeps hundreds of events of each step, and takes a while to count them.
    observed, pause_s = (150, 0.0) if options.own == "never" else (50, 0.01)
    watched = diagnose(steps=observed, report=None, json=options.json, profile=options.profile)
    steps = profiled = 0
    # Until it has detached again.
    while steps < 20 or nn.Module.__call__ is not CALL or (options.own == "late" and profiled < 5):
        steps += 1
        with watched:
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        if torch._C._autograd._profiler_enabled() and not begun and options.own == "late":
            # perfdoctor profiles at this moment.
            begun = True
            own.start()
        profiled += begun
        time.sleep(pause_s)
        if profiled == 5 and options.own == "late":
            own.stop()
            print("late", sum("addmm" in one.key for one in own.key_averages()))
    if options.own == "always":
        own.stop()
        print("always", sum("addmm" in one.key for one in own.key_averages()))
    until = time.monotonic() + 60
    while watched.diagnosis is None and time.monotonic() < until:
        time.sleep(0.05)
    print("enabled", torch._C._autograd._profiler_enabled())


if __name__ == "__main__":
    main()
