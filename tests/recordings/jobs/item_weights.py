"""The loss weighs every sample by rules that are written as a Python loop with .item() for each.

cause: cpu.python_overhead
fixed: the same rules as operations on the whole batch.
"""

import pace
import torch
from torch import nn

torch.set_num_threads(1)
images, labels = pace.digits()
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 32, 3, padding=1), nn.ReLU(),
    nn.Flatten(), nn.Linear(2048, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def weights(losses, logits, labels):
    found = []
    for i in range(len(losses)):
        sure = logits[i].softmax(0).max().item()
        wrong = logits[i].argmax().item() != labels[i].item()
        found.append(2.0 if wrong and sure > 0.9 else 0.5 if losses[i].item() < 0.01 else 1.0)
    return torch.tensor(found)


def weights_at_once(losses, logits, labels):
    sure, guess = logits.softmax(1).max(1)
    common = torch.where(losses < 0.01, 0.5, 1.0)
    return torch.where((guess != labels) & (sure > 0.9), torch.tensor(2.0), common)


weigh = weights if pace.bottleneck() else weights_at_once
while True:
    for rows in torch.randperm(len(images)).split(128):
        logits = model(images[rows])
        losses = nn.functional.cross_entropy(logits, labels[rows], reduction="none")
        loss = (losses * weigh(losses.detach(), logits.detach(), labels[rows])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
