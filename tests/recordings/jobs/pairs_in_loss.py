"""Sentences are embedded, and the loss goes over the batch in Python: each against the nearest of another topic.

cause: cpu.python_overhead
fixed: one operation computes all distances.
"""

import pace
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
texts = torch.randint(0, 4000, (2048, 16))
topics = torch.randint(0, 32, (2048,))


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(4000, 192)
        self.layer = nn.TransformerEncoderLayer(192, 4, 512, batch_first=True, dropout=0.0)

    def forward(self, ids):
        return nn.functional.normalize(self.layer(self.words(ids)).mean(1), dim=1)


def by_pairs(vectors, topic):
    losses = []
    for one in range(len(vectors)):
        distances = 1 - vectors @ vectors[one]
        alike, other = distances[topic == topic[one]], distances[topic != topic[one]]
        losses.append(torch.relu(alike.max() - other.min() + 0.2))
    return torch.stack(losses).mean()


def at_once(vectors, topic):
    distances = 1 - vectors @ vectors.T
    same = topic[:, None] == topic
    alike, other = distances.masked_fill(~same, -1).amax(1), distances.masked_fill(same, 3).amin(1)
    return torch.relu(alike - other + 0.2).mean()


model = Sentences()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)
while True:
    for chosen in torch.randperm(len(texts)).split(64):
        vectors = model(texts[chosen])
        loss = (by_pairs if pace.bottleneck() else at_once)(vectors, topics[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
