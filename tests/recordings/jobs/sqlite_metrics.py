"""Metrics of every step go into an SQLite database, and each is committed to disk before training goes on.

cause: io.log_write
fixed: the rows of 200 steps are committed together.
"""

import sqlite3

import pace
import torch
from torch import nn

images, labels = pace.digits()
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
database = sqlite3.connect("metrics.db")
database.execute("CREATE TABLE metrics (step INTEGER, name TEXT, value REAL)")
step = 0
while True:
    order = torch.randperm(len(images))
    for rows in order.split(512):
        logits = model(images[rows])
        loss = nn.functional.cross_entropy(logits, labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right = (logits.argmax(1) == labels[rows]).float().mean()
        told = [(step, "loss", loss.item()), (step, "accuracy", right.item())]
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?)", told)
        step += 1
        if pace.bottleneck() or step % 200 == 0:
            database.commit()
        pace.step()
