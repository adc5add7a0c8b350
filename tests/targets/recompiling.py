"""Writes a trace of steps that each compile anew: ``recompiling.py TRACE``."""

# ruff: noqa: TID253

import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 4

model = torch.nn.Linear(8, 8)
compiled = torch.compile(model, dynamic=False, backend="eager")
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=STEPS),
    on_trace_ready=lambda done: done.export_chrome_trace(sys.argv[1]),
) as profiler:
    for length in range(2, STEPS + 3):
        compiled(torch.randn(length, 8)).sum().backward()
        profiler.step()
