"""A classifier that ranks its last 4,000 predictions anew after every batch, for the average precision of each class.

cause: cpu.python_overhead
fixed: that is done every hundred batches.
"""

import pace
import torch
from torch import nn

torch.manual_seed(0)
images, labels = pace.digits()
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scores, truth = torch.randn(4000, 10), torch.randint(10, (4000,))


def average_precision(scores, hits):
    """The area below precision over recall."""
    found = hits[scores.argsort(descending=True)].double()
    precision = found.cumsum(0) / torch.arange(1, len(found) + 1)
    return (precision * found).sum() / found.sum().clamp(min=1)


step = 0
while True:
    order = torch.randperm(len(images))
    for chosen in order.split(128):
        output = model(images[chosen])
        loss = nn.functional.cross_entropy(output, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores = torch.cat([output.detach(), scores])[:4000]
        truth = torch.cat([labels[chosen], truth])[:4000]
        step += 1
        if pace.bottleneck() or step % 100 == 0:
            quality = [average_precision(scores[:, number], truth == number) for number in range(10)]
        pace.step()
