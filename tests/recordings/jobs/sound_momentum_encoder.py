"""Two views of pictures are told from a queue of others; a second encoder follows the first, weight by weight.

cause: cpu.model_compute
"""

import copy

import pace
import torch
from torch import nn

torch.manual_seed(0)
images, _ = pace.digits()
encoder = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64))
follower = copy.deepcopy(encoder).requires_grad_(False)
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
queue = nn.functional.normalize(torch.randn(2048, 64), dim=1)


@torch.no_grad()
def follow():
    """Moves the second encoder's weights towards those of the first."""
    for theirs, ours in zip(follower.parameters(), encoder.parameters(), strict=True):
        theirs.mul_(0.99).add_(ours, alpha=0.01)


while True:
    for chosen in torch.randperm(len(images)).split(512):
        seen = images[chosen]
        one, other = seen + 0.1 * torch.randn_like(seen), seen + 0.1 * torch.randn_like(seen)
        asked = nn.functional.normalize(encoder(one), dim=1)
        with torch.no_grad():
            keys = nn.functional.normalize(follower(other), dim=1)
        alike = torch.cat([(asked * keys).sum(1, keepdim=True), asked @ queue.T], dim=1)
        loss = nn.functional.cross_entropy(alike / 0.1, torch.zeros(len(chosen), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow()
        queue = torch.cat([keys, queue])[:2048]
        pace.step()
