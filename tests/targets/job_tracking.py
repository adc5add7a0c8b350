"""Trains a small network and, at each step, commits metrics to an SQLite file or writes its weights, as told.

``job_tracking.py metrics|weights FOLDER``. No library's code for saving or logging is called.
"""

# ruff: noqa: TID253
import os
import sqlite3
import sys
from pathlib import Path

import torch
from endless import train
from torch import nn

torch.set_num_threads(1)
what, folder = sys.argv[1], Path(sys.argv[2])
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
database = sqlite3.connect(folder / "metrics.db")
database.execute("create table metrics (step int, name text, value real)")


def commit_metrics(step: int, loss: torch.Tensor) -> None:
    for name in ("loss", "rate", "epoch", "norm"):
        database.execute("insert into metrics values (?, ?, ?)", (step, name, loss.item()))
        database.commit()


def write_weights(_: int, __: torch.Tensor) -> None:
    with (folder / "weights").open("wb") as file:
        for parameter in model.parameters():
            file.write(parameter.detach().numpy().data)
        file.flush()
        os.fsync(file.fileno())


train(model, torch.rand(64, 512), commit_metrics if what == "metrics" else write_weights)
