"""A thread that watches for anomalies goes through the history of all metrics in Python, again and again.

cause: cpu.gil_contention
fixed: it looks at the last few entries only, once a second.
"""

import json
import statistics
import threading
import time
from collections import deque

import pace
import torch
from torch import nn

history = deque([{"step": i, "loss": 1.0 / (i + 1)} for i in range(20_000)], maxlen=20_000)


def watch():
    while True:
        entries = list(history)[-400 if pace.bottleneck() else -20 :]
        losses = [json.loads(json.dumps(entry))["loss"] for entry in entries]
        if losses[-1] > statistics.fmean(losses) + 6 * statistics.pstdev(losses):
            print("anomaly", flush=True)
        time.sleep(0.005 if pace.bottleneck() else 1.0)


threading.Thread(target=watch, daemon=True).start()
images, labels = pace.digits()
model = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.set_num_threads(1)
step = 0
while True:
    for rows in torch.randperm(len(images)).split(128):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        history.append({"step": step, "loss": loss.item()})
        pace.step()
