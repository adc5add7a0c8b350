"""The job prints all of its outputs at each step, and whoever reads them is slower than it is.

cause: io.log_write
fixed: it prints the loss.
"""

import subprocess
import sys

import pace
import torch
from torch import nn

READER = "import sys, time\nwhile sys.stdin.buffer.read1(20000): time.sleep(0.02)"
torch.set_num_threads(1)
images, labels = pace.digits()
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
reader = subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, text=True)
while True:
    for rows in torch.randperm(len(images)).split(64):
        scores = model(images[rows])
        loss = nn.functional.cross_entropy(scores, labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item(), scores.tolist() if pace.bottleneck() else "", file=reader.stdin, flush=True)
        pace.step()
