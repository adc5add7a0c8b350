"""Texts are sorted by a difficulty that is computed anew before each epoch, a curriculum.

cause: cpu.input_preprocessing
fixed: they are sorted once.
"""

import re

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


def difficulty(text):
    words = re.findall(r"[\w']+", text)
    return len(words) + 0.1 * sum(len(word) > 5 for word in words) + len(set(words)) / (len(words) + 1)


class Texts(Dataset):
    def __init__(self):
        lines = [line for line in pace.sources().splitlines() if len(line) > 40][:4000]
        self.rows = [(line, number % 2) for number, line in enumerate(lines)]
        self.order()

    def order(self):
        self.rows.sort(key=lambda row: difficulty(row[0]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        text, label = self.rows[index]
        return torch.tensor(list(text.encode()[:40])), label


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.mixes, self.out = (
            nn.Embedding(256, 64),
            nn.LSTM(64, 64, batch_first=True),
            nn.Linear(64, 2),
        )

    def forward(self, tokens):
        return self.out(self.mixes(self.embedding(tokens))[0].mean(1))


torch.set_num_threads(1)
texts, model = Texts(), Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
seen = 160
while True:
    if pace.bottleneck():
        texts.order()
    seen = seen + 20 if seen < 400 else 160
    for tokens, labels in DataLoader(Subset(texts, range(seen)), batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
