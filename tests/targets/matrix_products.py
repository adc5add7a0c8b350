"""Writes a trace of steps that are all but matrix products: ``matrix_products.py TRACE``."""

# ruff: noqa: TID253

import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 3

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(256, 512)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=2, active=STEPS),
    on_trace_ready=lambda done: done.export_chrome_trace(sys.argv[1]),
) as profiler:
    for _ in range(STEPS + 2):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        profiler.step()
