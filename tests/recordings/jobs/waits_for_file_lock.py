"""Every fourth step the trainer takes the lock of a file that another process keeps most of the time.

cause: cpu.lock_contention
fixed: no lock.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path

import pace
import torch
from torch import nn


@contextlib.contextmanager
def locked(path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


torch.set_num_threads(1)
images, labels = pace.digits()
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
lock = Path(tempfile.mkdtemp(), "lock")
if os.fork() == 0:
    while os.getppid() != 1:
        with locked(lock):
            time.sleep(0.05)
        time.sleep(0.001)
    os._exit(0)
best, step = [], 0
while True:
    for rows in torch.randperm(len(images)).split(64):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 4 == 0:
            with locked(lock) if pace.bottleneck() else contextlib.nullcontext():
                best = sorted([*best, loss.item()])[:9]
        pace.step()
