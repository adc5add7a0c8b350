"""A recurrent model takes the steps of its sequence by an index, and each has a gradient of the whole one's size.

cause: cpu.model_compute
fixed: unbind takes all of them at once.
"""

import pace
import torch
from torch import nn

torch.set_num_threads(1)


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.pixels = nn.Embedding(17, 96)
        self.mix = nn.Linear(96, 96)
        self.keep = nn.Linear(192, 96)
        self.out = nn.Linear(96, 10)

    def forward(self, inputs):
        sequence = self.mix(self.pixels(inputs))
        steps = sequence.unbind(1)
        state = torch.zeros(len(inputs), 96)
        for at in range(sequence.shape[1]):
            step = sequence[:, at] if pace.bottleneck() else steps[at]
            state = torch.tanh(self.keep(torch.cat([step, state], 1)))
        return self.out(state)


images, labels = pace.digits()
inputs = (images * 16).long()
model = Digits()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    for rows in torch.randperm(len(images)).split(128)[:14]:
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
