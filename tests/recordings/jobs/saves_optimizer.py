"""Every 6th step saves the model with its optimizer, and waits until the file is on the disk.

cause: io.checkpoint_write
fixed: a checkpoint every 500 steps.
"""

import os

import pace
import torch
from torch import nn

images, labels = pace.digits()
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def save(step):
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    with open("last.pt.new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace("last.pt.new", "last.pt")


step = 0
while True:
    for rows in torch.randperm(len(images)).split(256):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % (6 if pace.bottleneck() else 500) == 0:
            save(step)
        pace.step()
