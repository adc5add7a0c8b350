"""A compiled model reads a setting of its own that changes every 40 steps, and is compiled anew each time.

cause: cpu.python_overhead
fixed: the setting stays.
"""

import pace
import torch
from torch import nn

torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000


class Scheduled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )
        self.schedule = "start"

    def forward(self, x):
        return self.layers(x) / (2 + len(self.schedule))


torch.set_num_threads(1)
images, labels = pace.digits()
plain = Scheduled()
model = torch.compile(plain)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
while True:
    for rows in torch.randperm(1792).split(64):
        if step % 40 == 0 and pace.bottleneck():
            plain.schedule = f"step {step}"
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        pace.step()
