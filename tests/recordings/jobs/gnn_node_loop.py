"""A graph network; for some relations it sums messages node by node in a Python loop of tiny operators.

cause: cpu.python_overhead
fixed: all messages are summed by one index_add.
"""

import pace
import torch
from torch import nn

NODES, EDGES, WIDTH, LOOPED = 1500, 12_000, 128, 300

torch.manual_seed(0)
torch.set_num_threads(1)
sources, targets = torch.randint(NODES, (EDGES,)), torch.randint(NODES, (EDGES,)).sort().values
features, labels = torch.randn(NODES, WIDTH), torch.randint(8, (NODES,))
degrees = torch.bincount(targets, minlength=NODES)[:LOOPED].tolist()
looped = sum(degrees)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        messages = self.message(x)[sources].relu()
        if pace.bottleneck():
            sums = torch.zeros(NODES, WIDTH).index_add(0, targets[looped:], messages[looped:])
            first = [incoming.sum(0) for incoming in messages[:looped].split(degrees)]
            sums = torch.cat([torch.stack(first), sums[LOOPED:]])
        else:
            sums = torch.zeros(NODES, WIDTH).index_add(0, targets, messages)
        return self.update(torch.cat([x, sums], 1)).relu()


model = nn.Sequential(Layer(), Layer(), nn.Linear(WIDTH, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    loss = nn.functional.cross_entropy(model(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pace.step()
