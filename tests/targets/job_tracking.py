"""Trains a small network and, at each step, commits metrics to an SQLite file or writes its weights, as told.

``job_tracking.py metrics|weights FOLDER``. No library's code for saving or logging is called.
"""

# ruff: noqa: TID253
import os
import sqlite3
import sys
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)
what, folder = sys.argv[1], Path(sys.argv[2])
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.rand(64, 512)
database = sqlite3.connect(folder / "metrics.db")
database.execute("create table metrics (step int, name text, value real)")
step = 0
while True:
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if what == "metrics":
        for name in ("loss", "rate", "epoch", "norm"):
            database.execute("insert into metrics values (?, ?, ?)", (step, name, loss.item()))
            database.commit()
    else:
        with (folder / "weights").open("wb") as file:
            for parameter in model.parameters():
                file.write(parameter.detach().numpy().data)
            file.flush()
            os.fsync(file.fileno())
    if step == 2:
        print("ready 0", flush=True)
    step += 1
