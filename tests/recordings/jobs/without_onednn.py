"""oneDNN is switched off, and PyTorch's own code and NNPACK do the convolutions instead.

cause: cpu.model_compute
fixed: it stays on.
"""

import pace
import torch
from torch import nn

torch.set_num_threads(1)
torch.backends.mkldnn.enabled = not pace.bottleneck()
images, labels = pace.digits()
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(),
    nn.Flatten(), nn.Linear(3072, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    for rows in torch.randperm(len(images)).split(64)[:28]:
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
