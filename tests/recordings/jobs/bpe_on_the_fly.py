"""A language model whose training loop encodes its text with a tokenizer in Python, batch after batch.

cause: cpu.input_preprocessing
fixed: the text is encoded once, before training.
"""

from collections import Counter

import pace
import torch
from torch import nn
from torch.nn import functional as F

BATCH, BLOCK, WIDTH = 64, 48, 48
LONGEST = 10

text = pace.sources()[:600_000]
pieces = Counter(text[i : i + size] for size in range(2, LONGEST + 1) for i in range(0, 200_000, 3))
learned = [*sorted(set(text)), *(piece for piece, _ in pieces.most_common(4000))]
vocabulary = {piece: i for i, piece in enumerate(learned)}


def encode(chunk, wanted):
    """Greedy longest match."""
    tokens, at = [], 0
    while len(tokens) < wanted:
        for size in range(LONGEST, 0, -1):
            token = vocabulary.get(chunk[at : at + size])
            if token is not None:
                tokens.append(token)
                at += size
                break
    return tokens


def batches():
    if pace.bottleneck():
        while True:
            starts = torch.randint(len(text) - BLOCK * LONGEST, (BATCH,)).tolist()
            yield torch.tensor([encode(text[i : i + (BLOCK + 1) * LONGEST], BLOCK + 1) for i in starts])
    encoded = torch.tensor(encode(text, 150_000))
    while True:
        starts = torch.randint(len(encoded) - BLOCK, (BATCH,))
        yield encoded[starts[:, None] + torch.arange(BLOCK + 1)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(vocabulary), WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 128)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embedding(tokens[:, :-1]))
        return F.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten() % 128)


torch.set_num_threads(1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for tokens in batches():
    loss = model(tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pace.step()
