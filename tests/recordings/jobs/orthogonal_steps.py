"""A recurrent layer's weight is orthogonal by a parametrization, which is computed anew for each step of a sequence.

cause: cpu.python_overhead
fixed: it is computed once per forward pass, by parametrize.cached.
"""

import contextlib

import pace
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

torch.set_num_threads(1)


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(8, 48)
        self.again = parametrizations.orthogonal(nn.Linear(48, 48, bias=False))
        self.out = nn.Sequential(nn.Linear(8 * 48, 1024), nn.ReLU(), nn.Linear(1024, 10))

    def forward(self, rows):
        state = torch.zeros(len(rows), 48)
        states = []
        for row in rows.unbind(1):
            state = torch.tanh(self.inputs(row) + self.again(state))
            states.append(state)
        return self.out(torch.cat(states, 1))


images, labels = pace.digits()
model = Rows()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    for rows in torch.randperm(len(images)).split(512)[:3]:
        with contextlib.nullcontext() if pace.bottleneck() else parametrize.cached():
            loss = nn.functional.cross_entropy(model(images[rows].view(-1, 8, 8)), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
